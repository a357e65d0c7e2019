"""A party's rows as a network job uses them: which train, validate and test, and how they are encoded.

Every party does the same with its own columns, on the rows that the job's seeds name, so that row i of one
side is row i of the other without a word about it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from common.data.scanned import Rows, open_rows
from common.data.split import hold_out, split_rows
from common.errors import DataError
from common.nets.batches import batches_in_epoch
from common.nets.encoded import EncodedRows
from common.nets.field_stream import encode
from common.nets.fields import FieldPlan, FieldSettings
from common.nets.shape import NetShape, Optimisation
from common.runtime.config.networks import NetData, NetJob, Run
from common.runtime.config.party import PartyConfig
from common.runtime.linear_design import labelled_request, require_enough
from common.runtime.memory import give_back
from common.runtime.state import StateError, make_folder
from common.types import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Positions in some rows; each row is in one part.

    Attributes:
        fit: Rows that weights are trained on.
        validation: Rows that say when to stop.
        left: Training rows that this run treats as if they were not common.
        test: Rows that only measure.
    """

    fit: Ints = field(repr=False)
    validation: Ints = field(repr=False)
    left: Ints = field(repr=False)
    test: Ints = field(repr=False)

    @property
    def training(self) -> Ints:
        """Rows that train or validate, ascending: the order in which they are handed over."""
        return np.sort(np.concatenate([self.fit, self.validation]))


def parts_of(rows: int, data: NetData, run: Run) -> Parts:
    """Return the parts of `rows` rows in one run.

    Raises:
        DataError: No row would be left to train on.
    """
    training, test = split_rows(rows, data.test_fraction, run.split_seed)
    used, left = hold_out(training, 1.0 - run.overlap, "overlap", run.seed)
    fit, validation = hold_out(used, data.validation_fraction, "validation", run.seed)
    if not len(validation) and data.validation_fraction > 0:
        raise DataError(
            f"{len(used)} training rows are too few to hold out validation rows",
            advice="bring more rows, or set data.validation_fraction to 0",
        )
    return Parts(fit, validation, left, test)


@dataclass(frozen=True, slots=True, eq=False)
class NetDesign:
    """A party's rows, encoded.

    Attributes:
        plan: What was learnt about its columns.
        rows: Encoded, in the order of the table.
    """

    plan: FieldPlan
    rows: EncodedRows = field(repr=False)

    def digest(self) -> bytes:
        """Return SHA-256 over everything that is trained on; may be seen by this party alone."""
        plan = json.dumps(self.plan.to_json(), sort_keys=True).encode()
        return hashlib.sha256(plan + self.rows.digest()).digest()


def field_settings(own: PartyConfig, job: NetJob) -> FieldSettings:
    """Return how this party's columns become fields: its own word first, then the job's."""
    model = job.model
    return own.datasets[job.data.dataset].field_settings(model.numbers, model.bins, model.hash_buckets)


def net_rows(own: PartyConfig, job: NetJob) -> Rows:
    """Read and check the data set that a job names; columns of files stay there.

    Raises:
        Refused: This party has no data set of that name, or too few rows for its policy.
        DataError: The file is unreadable, or a cell in it is wrong.
    """
    declared, request = labelled_request(own, job.data.dataset, job.data.label, job.data.positive)
    rows = open_rows(declared, request)
    require_enough(own, rows.head)
    give_back()
    return rows


def encoded(rows: Rows, order: Ints, plan: FieldPlan, folder: Path) -> NetDesign:
    """Return the rows at these positions, in this order, as a network takes them: mapped files of a folder.

    Raises:
        DataError: The source is not what it was.
        StateError: The disk does not take them.
    """
    try:
        make_folder(folder)
        return NetDesign(plan, encode(rows, plan, order, folder))
    except OSError as exc:
        raise StateError(f"encoded rows cannot be kept: {exc.strerror}", where=str(folder)) from exc
    finally:
        give_back()


def shape_of(job: NetJob) -> NetShape:
    """Return the layers that the job asks for."""
    model = job.model
    return NetShape(
        embedding_dim=model.embedding_dim, bottom=model.bottom, top=model.top, dropout=model.dropout
    )


def optimisation_of(job: NetJob, rows: int) -> Optimisation:
    """Return how networks learn from this many rows."""
    train = job.train
    return Optimisation(
        learning_rate=train.step_size,
        schedule=train.schedule,
        horizon=train.epochs * batches_in_epoch(rows, train.batch_size),
        embedding_l2=train.embedding_l2,
        weight_decay=train.weight_decay,
        l2=job.model.l2,
    )


def network_seed(secret: bytes, run: Run) -> int:
    """Return the seed of a party's network in one run: the same for the same party and seed of the job.

    The secret is the party's own. Whoever knew the first weights and how fields are hashed could try every
    category against the first representations.
    """
    word = hashlib.sha256(b"colonnade network v1|" + secret + f"|{run.seed}".encode()).digest()[:8]
    return int.from_bytes(word, "big") >> 1
