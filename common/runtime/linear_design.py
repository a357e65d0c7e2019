"""A party's columns as a linear job uses them: split, scaled, checked, dealt into batches.

Both sides of a job do the same with their own columns, on the rows that the job's seeds name, so that row i
of one side is row i of the other without a word about it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

import numpy as np

from common.crypto.cipher import Cipher, PaillierCipher
from common.crypto.entropy import SystemEntropy
from common.crypto.limits import check_features, check_resolution
from common.crypto.paillier import PublicKey
from common.crypto.phe_bridge import PheCipher
from common.crypto.plan import Plan, PlanRequest, prove_ranges
from common.data.ids import ids_digest
from common.data.preprocess import Preprocessing
from common.data.reading import Label, TableRequest, open_source, read_table
from common.data.source import Declared
from common.data.split import BatchSchedule, split_rows
from common.data.table import Table
from common.errors import ConfigError, DataError, Refused, RemoteProtocolError
from common.glm.gradient_descent import GradientStep
from common.glm.losses import SQUARED, TAYLOR_LOGISTIC, QuadraticLoss
from common.glm.rank_rule import require_rank_margin
from common.runtime.alignment_cache import AlignmentKey
from common.runtime.config.alone import AloneJob, TrainingJob
from common.runtime.config.data import DatasetConfig
from common.runtime.config.job import JobConfig
from common.runtime.config.job_base import JobBase
from common.runtime.config.party import PartyConfig
from common.runtime.memory import give_back
from common.types import Floats, Ints

INTERCEPT = "intercept"

# Batches curve more than all rows together do; half the step keeps them from diverging.
MINIBATCH_DAMPING = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class LinearDesign:
    """One party's part of the design matrix.

    Attributes:
        features: Names of the d columns; the last one is `intercept` where this party has it.
        matrix: (n, d), the aligned rows in the common order, prepared; may be seen by this party alone.
        train: Positions of the training rows in `matrix`.
        test: Positions of the test rows.
        scaling: What was done to the columns, fitted on the training rows.
        notes: What reading and preparing did, with counts, for this party's own report.
        schedule: Which training rows belong to which round.
        penalties: l2 of each column, (d,).
    """

    features: tuple[str, ...]
    matrix: Floats = field(repr=False)
    train: Ints = field(repr=False)
    test: Ints = field(repr=False)
    scaling: Preprocessing
    schedule: BatchSchedule
    penalties: Floats
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> int:
        """Number of columns d, the intercept included."""
        return len(self.features)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the columns as they are trained on; it never leaves the party."""
        digest = hashlib.sha256(json.dumps([self.features, self.penalties.tolist()]).encode())
        digest.update(np.ascontiguousarray(self.matrix).tobytes())
        digest.update(self.train.astype("<i8").tobytes())
        return digest.hexdigest()

    def step(self, learning_rate: float) -> GradientStep:
        """Return the update of this party's weights."""
        return GradientStep(self.features, learning_rate, self.penalties)

    def curvature(self, loss: QuadraticLoss) -> float:
        """Return a times the largest eigenvalue of X'X/n over the training rows, plus the largest l2.

        The sum of these numbers over all parties bounds the curvature of the whole objective, so its
        inverse is a step size that cannot diverge.
        """
        rows = self.matrix[self.train]
        top = float(np.linalg.norm(rows, ord=2)) ** 2 / len(rows) if rows.size else 0.0
        return loss.curvature * top + float(self.penalties.max(initial=0.0))


def read_dataset(own: PartyConfig, job: TrainingJob) -> Table:
    """Read the data set that a job names, with its label at an active party, as `read_labelled` does."""
    table = read_labelled(own, job.data.dataset, job.data.label, job.data.positive)
    return table if job.takes_sparse_columns else table.dense()


def read_labelled(own: PartyConfig, name: str, column: str, positive: str | None) -> Table:
    """Read a data set as this party's own file declares it, with the label if this party is active.

    Raises:
        Refused: This party has no data set of that name, or too few rows for its policy.
        DataError: The file is unreadable, or a cell in it is wrong.
    """
    declared, request = labelled_request(own, name, column, positive)
    table = read_table(open_source(declared), request)
    require_enough(own, table)
    give_back()
    return table


def labelled_request(
    own: PartyConfig, name: str, column: str, positive: str | None
) -> tuple[Declared, TableRequest]:
    """Return where a data set is and what is wanted of it, the label included if this party is active.

    Raises:
        Refused: This party has no data set of that name.
    """
    dataset = own.datasets.get(name)
    if dataset is None:
        raise Refused(f"{own.party} has no data set called {name!r}")
    label = Label(column, dataset.missing_labels, positive) if own.role == "active" else None
    return dataset.source.declared(), _request(name, dataset, label)


def require_enough(own: PartyConfig, table: Table) -> None:
    """Refuse a data set with fewer rows than this party's policy asks for."""
    if table.rows < own.policy.min_rows:
        raise Refused(
            f"the policy of {own.party} asks for {own.policy.min_rows} rows at least; "
            f"the data set has {table.rows}"
        )


def id_rule(own: PartyConfig, job: JobBase) -> str:
    """Return how cells of the job's data set become ids at this party, as text to be compared."""
    return own.datasets[job.data.dataset].id_rule().describe()


def alignment_key(own: PartyConfig, job: JobBase, ids: Sequence[str]) -> AlignmentKey:
    """Return under what this party keeps the alignment of a job over these ids."""
    digest = ids_digest(ids).hex()
    return AlignmentKey(job.active, job.guests, job.data.dataset, id_rule(own, job), digest)


def open_dataset(name: str, dataset: DatasetConfig, label: Label | None = None) -> Table:
    """Read a data set as the party file declares it, with the label at the active party.

    Raises:
        DataError: The source is unreadable, or a cell in it is wrong.
        ConfigError: What is declared does not fit the columns.
    """
    return read_table(open_source(dataset.source.declared()), _request(name, dataset, label))


def _request(name: str, dataset: DatasetConfig, label: Label | None) -> TableRequest:
    return TableRequest(name, dataset.id_rule(), dataset.features, dataset.preparation(), label)


def plain_design(table: Table, job: TrainingJob) -> LinearDesign:
    """Return the design of a party without the intercept's column.

    Raises:
        NumericError: A feature is beyond the limits that the plan is proved for.
        DataError: No row would be left to train on, or no column.
    """
    design = _design(table, job)
    if not design.features:
        raise DataError(
            f"no column of {table.source} is left: every one is constant on the training rows",
            where=table.source,
            advice="bring columns that vary",
        )
    return design


def design_with_intercept(table: Table, job: TrainingJob) -> LinearDesign:
    """Return the active party's design: a column of ones stands last, if the job asks for an intercept.

    Raises:
        ConfigError: A feature is itself called `intercept`.
        NumericError, DataError: As `plain_design`.
    """
    if not job.data.intercept:
        return plain_design(table, job)
    design = _design(table, job)
    if INTERCEPT in design.features:
        raise ConfigError(
            f"a feature is called {INTERCEPT!r}, as the intercept is",
            advice="Rename the column, or exclude it.",
        )
    return replace(
        design,
        features=(*design.features, INTERCEPT),
        matrix=np.column_stack([design.matrix, np.ones(table.rows)]),
        penalties=np.append(design.penalties, job.model.l2 if job.model.penalize_intercept else 0.0),
    )


def _design(table: Table, job: TrainingJob) -> LinearDesign:
    train, test = split_rows(table.rows, job.data.test_fraction, job.data.split_seed)
    fitted = Preprocessing.fit(table.take(train), "standardize" if job.data.standardize else "none")
    prepared = fitted.apply(table)
    matrix = check_features(prepared.matrix, fitted.features)
    return LinearDesign(
        fitted.features,
        matrix,
        train,
        test,
        fitted,
        _schedule(len(train), job),
        np.full(len(fitted.features), job.model.l2),
        (*table.intake.sentences(), *fitted.notes(), *prepared.notes),
    )


def _schedule(rows: int, job: TrainingJob) -> BatchSchedule:
    """Return the job's batches; whoever is alone fits all rows at once."""
    if isinstance(job, AloneJob):
        return BatchSchedule(rows, None, 0)
    return BatchSchedule(rows, job.train.batch_size, job.train.seed)


def loss_of(job: JobConfig) -> QuadraticLoss:
    """Return the loss that the job's algorithm minimises."""
    return {"he_linear": SQUARED, "he_logistic": TAYLOR_LOGISTIC}[job.algorithm]


def prove_plan(design: LinearDesign, job: JobConfig, columns: Mapping[str, int]) -> Plan:
    """Prove before round 1 that nothing overflows (rule 1.2.7) and nobody can solve for rows (rule 1.2.5).

    Args:
        design: Of this party.
        job: The job.
        columns: Of every party that has columns.

    Raises:
        NumericError: A value could overflow, or a column would be rounded away.
        Refused: Batches are too small.
    """
    require_rank_margin(design.schedule.smallest, columns)
    if not job.uses_gram:  # whose columns are in units of their root mean square
        check_resolution(design.matrix[design.train], design.features, job.crypto.precision_bits)
    return prove_ranges(
        PlanRequest(
            key_bits=job.crypto.key_bits,
            scale_bits=job.crypto.precision_bits,
            rows=len(design.train),
            columns=max(columns.values()),
            parties=len(columns),
        )
    )


def step_size(job: JobConfig, curvatures: Mapping[str, float]) -> float:
    """Return the job's learning rate; `auto` is the inverse of a bound on the curvature."""
    if not job.needs_curvature:
        return 0.0 if job.train.learning_rate == "auto" else job.train.learning_rate
    bound = 1.0 / sum(curvatures.values())
    return bound if job.train.batch_size is None else MINIBATCH_DAMPING * bound


def cipher_for(job: JobConfig, key: PublicKey, executor: Executor) -> Cipher:
    """Return the cipher that the job's `crypto.backend` names.

    Raises:
        RemoteProtocolError: The key is not as long as the job says.
    """
    if key.bits != job.crypto.key_bits:
        raise RemoteProtocolError(f"the key has {key.bits} bits, the job says {job.crypto.key_bits}")
    backends: dict[str, type[PaillierCipher] | type[PheCipher]] = {"gmpy2": PaillierCipher, "phe": PheCipher}
    return backends[job.crypto.backend](key, executor, SystemEntropy())
