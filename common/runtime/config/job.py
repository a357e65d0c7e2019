"""The job file of encrypted regression: what is trained, by whom, on which data, and how."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from common.runtime.config.errors import KeyBits, Name, Section, require, validated
from common.runtime.config.job_base import JobBase, JobRows
from common.runtime.config.yaml_source import Document, Problem, read_document
from common.types import Noise, Role

# A job is a page of settings; a peer that sends more sends something else.
MAX_JOB_BYTES = 64 * 1024

Seed = Annotated[int, Field(ge=0, lt=2**63)]


def _as_text(value: object) -> object:
    """Return a number as the text it would be in a file; `positive: 1` means what `positive: "1"` means."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class JobData(JobRows):
    """Which rows and columns are used, and how they are prepared.

    `positive` names the label's value that counts as +1, for a classifier whose labels are neither {0, 1} nor
    {-1, +1}.
    """

    label: str = Field(min_length=1)
    test_fraction: float = Field(default=0.3, ge=0, lt=1)
    split_seed: Seed = 0
    standardize: bool = True
    intercept: bool = True
    positive: Annotated[str, BeforeValidator(_as_text)] | None = None


class JobModel(Section):
    """The objective: (1/n) sum of losses + (l2/2)·|w|²."""

    l2: float = Field(default=1e-3, ge=0)
    penalize_intercept: bool = False


class JobTrain(Section):
    """How the objective is minimised. `loss_every: 0` means that nobody ever decrypts the loss."""

    solver: Literal["gd", "cg"] = "gd"
    learning_rate: Literal["auto"] | Annotated[float, Field(gt=0)] = "auto"
    max_rounds: int = Field(default=100, ge=1, le=1_000_000)
    tolerance: float | None = Field(default=None, gt=0)
    batch_size: int | None = Field(default=None, ge=1)
    loss_every: int = Field(default=1, ge=0)
    seed: Seed = 0

    def has_loss(self, round_number: int) -> bool:
        """Whether the loss of a round (from 1) is computed: rounds 1, 1 + loss_every, 1 + 2·loss_every, …"""
        return self.loss_every > 0 and (round_number - 1) % self.loss_every == 0

    @model_validator(mode="after")
    def _tolerance_sees_a_loss(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        if self.tolerance is not None and self.loss_every == 0 and self.solver == "gd":
            yield Problem(
                ("tolerance",), "needs the loss: set train.loss_every to 1 or more, or tolerance to null"
            )
        if self.solver == "cg" and self.batch_size is not None:
            yield Problem(("batch_size",), "must be null with solver: cg, which needs all rows a round")


class JobCrypto(Section):
    """The key and the fixed-point scale, one for the whole job."""

    key_bits: KeyBits = 2048
    precision_bits: int = Field(default=32, ge=8, le=60)
    rounds: Literal["rowwise", "gram", "auto"] = "rowwise"
    backend: Literal["gmpy2", "phe"] = "gmpy2"
    noise: Noise = "proven"

    @model_validator(mode="after")
    def _noise_of_the_backend(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        if self.backend == "phe" and self.noise != "proven":
            yield Problem(("noise",), "must be proven with backend: phe, whose noise is r^N")


class JobConfig(JobBase):
    """Encrypted regression between several parties, with a coordinator who holds the key."""

    algorithm: Literal["he_linear", "he_logistic"] = "he_linear"
    coordinator: Name
    data: JobData
    model: JobModel = JobModel()
    train: JobTrain = JobTrain()
    crypto: JobCrypto = JobCrypto()

    @model_validator(mode="after")
    def _everybody_once(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        yield from self.named_twice()
        if self.crypto.rounds == "gram" and self.train.batch_size is not None:
            yield Problem(
                ("train", "batch_size"),
                "must be null with crypto.rounds: gram, which needs all rows in every round",
            )
        if self.data.positive is not None and self.algorithm != "he_logistic":
            yield Problem(("data", "positive"), "belongs to a classifier: algorithm: he_logistic")

    @property
    def uses_gram(self) -> bool:
        """Whether rounds work on shared cross products instead of rows; `auto` does wherever it can."""
        rounds, full_batch = self.crypto.rounds, self.train.batch_size is None
        return rounds == "gram" or (rounds == "auto" and full_batch)

    def with_rounds(self, kind: Literal["rowwise", "gram"]) -> JobConfig:
        """Return the job with the rounds that were chosen for `auto`."""
        return self.model_copy(update={"crypto": self.crypto.model_copy(update={"rounds": kind})})

    @property
    def needs_curvature(self) -> bool:
        """Whether the passive parties tell the largest eigenvalue of X'X/n, for an automatic step size."""
        return self.train.solver == "gd" and self.train.learning_rate == "auto"

    def decrypts_loss(self, round_number: int) -> bool:
        """Whether the key holder decrypts the loss of a round; with conjugate gradients it never does."""
        return self.train.solver == "gd" and self.train.has_loss(round_number)

    @property
    def resumes(self) -> bool:
        """Whether the job goes on after a loss: from the last round that all parties have."""
        return True

    @property
    def most_rounds(self) -> int:
        """How many rounds the job takes at most."""
        return self.train.max_rounds

    @property
    def members(self) -> tuple[str, ...]:
        """Every party of the job: the active one, the passive ones, the coordinator."""
        return (self.active, *self.passive, self.coordinator)

    def role_of(self, party: str) -> Role | None:
        """Return the role that the job gives to a party, None when it names it nowhere."""
        return "coordinator" if party == self.coordinator else super().role_of(party)


def load_job(path: Path) -> JobConfig:
    """Read a job file.

    Raises:
        ConfigError: Names every problem with its path and line.
    """
    return job_of(read_document(path))


def job_of(document: Document) -> JobConfig:
    """Return a document that has been read as a job."""
    return validated(JobConfig, document)
