"""A party's columns as VFB² trains on them: the same rows at every party, each one's own columns prepared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from common.data.preprocess import Preprocessing
from common.data.split import split_rows
from common.data.table import Table
from common.errors import ConfigError, DataError
from common.glm.asynchronous import Progress
from common.glm.block import Block
from common.glm.collaboration import Collaboration
from common.glm.feature_rows import DenseRows, FeatureRows, SparseRows
from common.glm.labels import SignedLabels, signed_labels
from common.glm.score_losses import penalty_named
from common.glm.step_size import StepSchedule
from common.glm.update_rules import rule_named
from common.runtime.config.party import PartyConfig
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.linear_design import INTERCEPT, read_labelled
from common.types import Floats, Ints

_UNKNOWN_STEP = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """What an active party predicts; may be seen by active parties alone.

    Attributes:
        values: As the loss takes them, −1 and +1 for a classifier, (n,) in the aligned order.
        signed: How a classifier's labels were written, None for a number.
    """

    values: Floats = field(repr=False)
    signed: SignedLabels | None


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """One party's part of the design matrix.

    Attributes:
        names: Of the d columns; the last one is `intercept` at the conducting party, if the job asks for it.
        train: Training rows, may be seen by this party alone.
        test: Test rows, likewise.
        train_rows: Their positions among the aligned rows.
        test_rows: Likewise.
        penalties: l2 of each column, (d,).
        preprocessing: What was learnt about the columns from the training rows.
        notes: What reading and preparing did, with counts.
    """

    names: tuple[str, ...]
    train: FeatureRows = field(repr=False)
    test: FeatureRows = field(repr=False)
    train_rows: Ints = field(repr=False)
    test_rows: Ints = field(repr=False)
    penalties: Floats = field(repr=False)
    preprocessing: Preprocessing
    notes: tuple[str, ...] = ()

    def collaboration(self, job: Vfb2Job) -> Collaboration:
        """Return this party's block at the start of training; its first session says the step size."""
        rule = rule_named(job.train.update, self.train)
        block = Block(self.train, self.names, rule, penalty_named(job.train.loss, self.penalties))
        # While step sizes are tried one dominator may have as many in flight as all of them together.
        progress = Progress(job.dominators, job.train.max_staleness * len(job.dominators))
        return Collaboration(block, progress, StepSchedule(_UNKNOWN_STEP, job.train.decay), self.test)


def read_rows(own: PartyConfig, job: Vfb2Job) -> Table:
    """Read the data set that a job names, with the label at an active party.

    Raises:
        Refused: This party has no data set of that name, or too few rows for its policy.
        DataError: The file is unreadable, or a cell in it is wrong.
    """
    column = job.data.label_of(own.party) if own.party in job.dominators else ""
    return read_labelled(own, job.data.dataset, column, job.data.positive)


def labels_of(table: Table, job: Vfb2Job, party: str) -> Labels:
    """Return the label of aligned rows as the job's loss takes it.

    Raises:
        DataError: A classifier's labels are not two values, or one is not finite.
    """
    name = job.data.label_of(party)
    column = table.column(name)
    if not job.is_classifier:
        return Labels(column, None)
    signed = signed_labels(column, name)
    return Labels(signed.values, signed)


def prepare_columns(table: Table, job: Vfb2Job, party: str) -> Columns:
    """Split and prepare a party's aligned rows; an active party's label is left out.

    Raises:
        DataError: No row would be left to train on, or no column.
        NumericError: A column is so large that it cannot be standardised.
        ConfigError: A feature is itself called `intercept`.
    """
    if party in job.dominators:
        table = table.without(job.data.label_of(party))
    train, test = split_rows(table.rows, job.data.test_fraction, job.data.split_seed)
    fitted = Preprocessing.fit(table.take(train), "standardize" if job.data.standardize else "none")
    prepared = fitted.apply(table) if fitted.sparse is None else fitted.apply_sparse(table)
    matrix, names, penalties = prepared.matrix, fitted.features, np.full(len(fitted.features), job.model.l2)
    if party == job.active and job.data.intercept:
        if INTERCEPT in names:
            raise ConfigError(
                f"a feature is called {INTERCEPT!r}, as the intercept is",
                advice="Rename the column, or exclude it.",
            )
        names = (*names, INTERCEPT)
        matrix = _with_ones(matrix)
        penalties = np.append(penalties, job.model.l2 if job.model.penalize_intercept else 0.0)
    if not names:
        raise DataError(
            f"no column of {table.source} is left: every one is constant on the training rows",
            where=table.source,
            advice="bring columns that vary",
        )
    notes = (*table.intake.sentences(), *fitted.notes(), *prepared.notes)
    kind = DenseRows if isinstance(matrix, np.ndarray) else SparseRows
    rows = kind(matrix[train]), kind(matrix[test])
    return Columns(names, *rows, train, test, penalties, fitted, notes)


def _with_ones(matrix: Any) -> Any:
    """Return a matrix, dense or compressed, with a column of ones after its own."""
    ones = np.ones((matrix.shape[0], 1))
    if isinstance(matrix, np.ndarray):
        return np.column_stack([matrix, ones])
    return csr_array(hstack([matrix, csr_array(ones)], format="csr"))
