"""The job file of VFB²: asynchronous training in plaintext exchange, with one or several active parties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from common.glm.score_losses import LossName
from common.glm.update_rules import RuleName
from common.runtime.config.errors import KeyBits, Name, Section, require
from common.runtime.config.job import JobModel, Seed
from common.runtime.config.job_base import JobRows, JointJob
from common.runtime.config.yaml_source import Problem
from common.types import Role

# Rows and derivatives of one update stay below one chunk of a stream.
MAX_BATCH = 32_768
# Ciphertexts of one update, twice as wide as the key: no message may be longer.
_MOST_SEALED_BYTES = 1 << 20
# Every open request keeps a mask at every party.
MAX_STALENESS = 1024
MAX_THREADS = 64
# Trees of more parties than this were never tested; the span test grows with their third power.
MAX_PARTIES = 64

CLASSIFIERS = ("logistic", "logistic_nonconvex")


def _as_text(value: object) -> object:
    """Return a number as the text it would be in a file; `positive: 1` means what `positive: "1"` means."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Label = Annotated[str, Field(min_length=1)]


class Vfb2Data(JobRows):
    """Which rows and columns are used. `label` may be a map where active parties call it differently."""

    label: Label | dict[Name, Label]
    test_fraction: float = Field(default=0.3, ge=0, lt=1)
    split_seed: Seed = 0
    standardize: bool = True
    intercept: bool = True
    positive: Annotated[str, BeforeValidator(_as_text)] | None = None

    def label_of(self, party: str) -> str:
        """Return the label's column at an active party."""
        return self.label if isinstance(self.label, str) else self.label[party]


class Vfb2Train(Section):
    """How the objective is minimised. One epoch is as many rows as there are training rows."""

    update: RuleName = "svrg"
    loss: LossName = "logistic"
    batch_size: int = Field(default=32, ge=1, le=MAX_BATCH)
    epochs: int = Field(default=20, ge=1, le=100_000)
    learning_rate: Literal["auto"] | Annotated[float, Field(gt=0)] = "auto"
    decay: float = Field(default=0.0, ge=0)
    tolerance: float | None = Field(default=None, gt=0)
    threads: int = Field(default=1, ge=1, le=MAX_THREADS)
    max_staleness: int = Field(default=8, ge=1, le=MAX_STALENESS)
    aggregation: Literal["trees", "pairwise"] = "trees"
    tree_shape: Literal["flat", "binomial"] = "flat"
    mode: Literal["async", "sync"] = "async"
    journal: Literal["written", "flushed"] = "written"
    theta: Literal["plain", "encrypted"] = "plain"
    theta_key_bits: KeyBits = 2048
    seed: Seed = 0


class Vfb2Job(JointJob):
    """Training between q parties, of which m ≥ 1 are active. The first active party conducts.

    A coordinator may be named, as other jobs do, and has no part.
    """

    algorithm: Literal["vfb2"]
    coordinator: Name | None = None
    data: Vfb2Data
    model: JobModel = JobModel()
    train: Vfb2Train = Vfb2Train()

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, values: Any) -> Any:
        """Take `active` as a list, and settings of training from where the contract lets one write them."""
        if not isinstance(values, Mapping):
            return values
        found = dict(values)
        active = found.get("active")
        if isinstance(active, list | tuple) and active and "also_active" not in found:
            found["active"], found["also_active"] = active[0], list(active[1:])
        # What a validator returns is taken as Python values, among which strict types want tuples for lists.
        return {
            key: tuple(value) if isinstance(value, list) else value for key, value in _gathered(found).items()
        }

    @field_validator("also_active", "passive")
    @classmethod
    def _few_enough(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(names) >= MAX_PARTIES:
            raise ValueError(f"at most {MAX_PARTIES} parties train together")
        return names

    @model_validator(mode="after")
    def _everybody_once(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        yield from self.named_twice()
        if not self.guests:
            yield Problem(("passive",), "names nobody: two parties at least train together")
        if self.data.positive is not None and not self.is_classifier:
            yield Problem(("data", "positive"), "belongs to a classifier: train.loss: logistic")
        if isinstance(self.data.label, dict):
            for name in sorted(set(self.dominators) ^ set(self.data.label)):
                yield Problem(
                    ("data", "label"), f'needs one column for each active party; "{name}" is the odd one'
                )
        if self.train.theta == "encrypted":
            yield from self._broken_guard()

    def _broken_guard(self) -> Iterator[Problem]:
        """Yield what does not go with θ that only its dominator sees."""
        if self.train.update == "saga":
            text = "keeps θ of every row at every party; with theta: encrypted it is sgd or svrg"
            yield Problem(("train", "update"), text)
        if self.train.batch_size * self.train.theta_key_bits // 4 > _MOST_SEALED_BYTES:
            text = f"is at most {_MOST_SEALED_BYTES * 4 // self.train.theta_key_bits:,} with theta: encrypted"
            yield Problem(("train", "batch_size"), text)
        if self.also_active:
            yield Problem(("active",), "is one party with theta: encrypted: whose θ nobody else sees")

    @property
    def dominators(self) -> tuple[str, ...]:
        """All active parties, the conducting one first."""
        return (self.active, *self.also_active)

    @property
    def takes_sparse_columns(self) -> bool:
        """Sparse columns stay sparse: memory and work grow with what is not zero."""
        return True

    @property
    def resumes(self) -> bool:
        """The job goes on from every party's journal after a loss."""
        return True

    @property
    def is_classifier(self) -> bool:
        """Whether labels are two classes."""
        return self.train.loss in CLASSIFIERS

    @property
    def most_rounds(self) -> int:
        """Epochs at most."""
        return self.train.epochs

    def role_of(self, party: str) -> Role | None:
        """Return the role that the job gives to a party, None when it names it nowhere."""
        return "coordinator" if party == self.coordinator else super().role_of(party)


def _gathered(values: dict[str, Any]) -> dict[str, Any]:
    """Move settings of training that stand at the top, or the loss under `model`, to `train`.

    What stands in two places stays where it is, and is reported as an unknown key.
    """
    train = values.get("train", {})
    if not isinstance(train, Mapping):
        return values
    moved = dict(train)
    for name in Vfb2Train.model_fields.keys() & values.keys():
        if name not in moved:
            moved[name] = values.pop(name)
    model = values.get("model")
    if isinstance(model, Mapping) and "loss" in model and "loss" not in moved:
        moved["loss"] = model["loss"]
        values["model"] = {key: value for key, value in model.items() if key != "loss"}
    return {**values, "train": moved} if moved else values
