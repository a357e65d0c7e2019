"""B's rows in a job with networks: common ones, its own, and which of both train, validate and test."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from common.data.scanned import Rows
from common.data.split import hold_out, split_rows
from common.data.table import Table
from common.glm.labels import signed_labels
from common.nets.field_stream import learn
from common.nets.fields import FieldSettings
from common.runtime.checkpoint import Checkpoint
from common.runtime.config.networks import NetJob, Run
from common.runtime.config.party import PartyConfig
from common.runtime.kept_data import hold_to_digest
from common.runtime.net_design import NetDesign, Parts, encoded, field_settings, parts_of
from common.types import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Student:
    """Row numbers of what a model of B's alone is trained and measured on, in one run.

    Attributes:
        shared: Common rows that are trained on, in the order in which their representations came.
        own: Rows trained on that A does not have, or that this run treats so.
        validation: Rows that say when to stop.
        test: Rows that only measure, common ones first.
        common_test: How many of `test` are common.
    """

    shared: Ints = field(repr=False)
    own: Ints = field(repr=False)
    validation: Ints = field(repr=False)
    test: Ints = field(repr=False)
    common_test: int


@dataclass(frozen=True, slots=True, eq=False)
class ActiveRows:
    """Everything B holds; may be seen by it alone.

    Attributes:
        job: The job.
        source: All B's rows, in file order.
        folder: For encoded rows.
        labels: 0 and 1, (n,).
        label_note: How the label's values were read.
        common: Row numbers of the common rows, in the order of the alignment.
        own: Row numbers of the others, ascending.
        settings: How columns become fields.
    """

    job: NetJob
    source: Rows = field(repr=False)
    folder: Path
    labels: Floats = field(repr=False)
    label_note: str
    common: Ints = field(repr=False)
    own: Ints = field(repr=False)
    settings: FieldSettings
    _designs: dict[int, NetDesign] = field(default_factory=dict, repr=False)
    _encoding: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def head(self) -> Table:
        """Ids and label of all rows, and what reading did."""
        return self.source.head

    def design(self, run: Run) -> NetDesign:
        """Return all rows encoded by what the run's training and validation rows teach about the columns."""
        # Models of one run are trained at the same time.
        with self._encoding:
            found = self._designs.get(run.split_seed)
            if found is None:
                found = self._designs[run.split_seed] = self._encoded(run)
            return found

    def _encoded(self, run: Run) -> NetDesign:
        training, _ = hold_out(self.own, self.job.data.test_fraction, "own test", run.split_seed)
        if len(self.common):
            used, _ = split_rows(len(self.common), self.job.data.test_fraction, run.split_seed)
            training = np.sort(np.concatenate([training, self.common[used]]))
        plan, part = learn(self.source, training, self.settings), f"split{run.split_seed}"
        design = encoded(self.source, np.arange(self.head.rows), plan, self.folder / f"{part}-rows")
        hold_to_digest(Checkpoint(self.folder), design.digest(), self.head, part)
        return design

    def parts(self, run: Run) -> Parts:
        """Return the parts of the common rows in a run."""
        return parts_of(len(self.common), self.job.data, run)

    def student(self, run: Run) -> Student:
        """Return what a model of B's alone is trained and measured on."""
        data = self.job.data
        own_training, own_test = hold_out(self.own, data.test_fraction, "own test", run.split_seed)
        shared = validation = left = common_test = np.zeros(0, dtype=np.int64)
        if len(self.common):
            parts = self.parts(run)
            shared, validation = self.common[parts.fit], self.common[parts.validation]
            left, common_test = self.common[parts.left], self.common[parts.test]
        alone, held = hold_out(
            np.concatenate([own_training, left]), data.validation_fraction, "own validation", run.seed
        )
        return Student(
            shared,
            alone,
            np.concatenate([validation, held]),
            np.concatenate([common_test, own_test]),
            len(common_test),
        )


def active_rows(own: PartyConfig, job: NetJob, source: Rows, folder: Path, common: Ints) -> ActiveRows:
    """Return B's rows once it is known which are common.

    Args:
        own: B.
        job: The job.
        source: With the label.
        folder: The job's checkpoint.
        common: Row numbers, in the order of the alignment; none for B alone.

    Raises:
        DataError: The labels are not two values.
    """
    signs = signed_labels(source.head.column(job.data.label), job.data.label)
    rest = np.setdiff1d(np.arange(source.head.rows), common)
    settings = field_settings(own, job)
    return ActiveRows(job, source, folder, signs.as_01, signs.describe(), common, rest, settings)
