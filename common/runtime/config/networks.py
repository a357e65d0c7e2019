"""Jobs that train networks: split networks, semi-federated learning, distillation, and B's network alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, model_validator

from common.nets.fields import NumericRule
from common.nets.recipe import MOST_MEMBERS, Patience
from common.nets.shape import Schedule
from common.runtime.config.errors import Name, Section, require
from common.runtime.config.job import JobData, Seed
from common.runtime.config.job_base import JobBase
from common.runtime.config.network_terms import JplTerms
from common.runtime.config.yaml_source import Problem
from common.types import Role

# Keys are moved to their sections before they are checked; after that, strict types would refuse a list.
Listed = Strict(False)
Widths = Annotated[tuple[Annotated[int, Field(ge=1, le=4096)], ...], Field(max_length=8), Listed]
Fraction = Annotated[float, Field(gt=0, le=1)]
Method = Literal[
    "local", "local_twice", "fpd", "fpd_twice", "jpl_without_a", "jpl", "jpl_twice", "jpl_paper", "splitnn"
]

# What a reader of the job file may write under another section than ours; there it means the same.
_HOMES: Mapping[str, frozenset[str]] = {
    "model": frozenset(
        {"embedding_dim", "hash_buckets", "bottom", "top", "dropout", "numbers", "bins", "members"}
    ),
    "privacy": frozenset({"protect", "epsilon", "power", "noise", "clip", "attacks"}),
}
_LABEL_DP = re.compile(r"label_dp\s*\(\s*(?:ε|eps|epsilon)?\s*=?\s*([0-9.]+(?:e-?[0-9]+)?)\s*\)")
_ALL: tuple[Method, ...] = ("local", "local_twice", "fpd", "fpd_twice", "jpl_without_a", "jpl", "splitnn")
# Whoever is going to ask A for every prediction does not look for a student.
_COMPARED: Mapping[str, tuple[Method, ...]] = {"splitnn": ("local", "splitnn")}
_MOST_RUNS = 200
_ADAM_STEP = 1e-3


class NetData(JobData):
    """Which rows and columns are used.

    `validation_fraction` of the training rows is held out to say when to stop.
    """

    validation_fraction: float = Field(default=0.2, ge=0, lt=1)


class NetModel(Section):
    """The networks: an embedding for each field of categories, a bottom at each party, a top at B.

    `l2` is the penalty of every algorithm, (l2/2)·‖W‖², on the weights of the layers. Biases are never
    penalised, and embeddings by `train.embedding_l2`. A model of B's alone is `members` networks whose scores
    are averaged.
    """

    kind: Literal["network"] = "network"
    embedding_dim: int = Field(default=8, ge=1, le=1024)
    hash_buckets: int = Field(default=16_384, ge=2, le=2**24)
    bottom: Widths = Field(default=(64, 32), min_length=1)
    top: Widths = (32,)
    dropout: float = Field(default=0.2, ge=0, lt=1)
    numbers: NumericRule = "quantile"
    bins: int = Field(default=32, ge=2, le=4096)
    l2: float = Field(default=0.0, ge=0)
    penalize_intercept: Literal[False] = False
    members: int = Field(default=1, ge=1, le=MOST_MEMBERS // 2)


class NetTrain(Section):
    """How networks are trained: Adam on mini-batches, until the validation rows stop improving.

    `measure_teacher` asks A for representations of the test rows too, so that a model of B's alone can be
    compared with the split network.
    """

    batch_size: int = Field(default=512, ge=2, le=65_536)
    epochs: int = Field(default=20, ge=1, le=10_000)
    patience: int | None = Field(default=3, ge=1)
    stop: Literal["auc", "log_loss"] = "auc"
    learning_rate: Literal["auto"] | Annotated[float, Field(gt=0)] = "auto"
    schedule: Schedule = "constant"
    embedding_l2: float = Field(default=0.03, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    seed: Seed = 0
    pipeline: bool = True
    wire: Literal["float32", "float16"] = "float32"
    measure_teacher: bool = True

    @property
    def step_size(self) -> float:
        """Adam's step size; `auto` is the usual one."""
        return _ADAM_STEP if self.learning_rate == "auto" else self.learning_rate


class NetPrivacy(Section):
    """What is done to what crosses the cut: B's gradients, and A's representations.

    `power` is that of marvell's noise, relative to the distance between the classes. `clip` is the largest
    norm of a row of a representation, `noise` the deviation of Gaussian noise on each of its numbers in units
    of `clip`. `attacks` lets B run A's attacks on its own gradients and report how well they do.
    """

    protect: Literal["none", "max_norm", "marvell", "label_dp"] = "none"
    epsilon: float | None = Field(default=None, gt=0)
    power: float = Field(default=4.0, gt=0)
    noise: float = Field(default=0.0, ge=0)
    clip: float | None = Field(default=None, gt=0)
    attacks: bool = False

    @model_validator(mode="after")
    def _epsilon_is_for_label_dp(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        if self.protect == "label_dp" and self.epsilon is None:
            yield Problem(("epsilon",), "is missing: how much a label may tell, for example 1.0")
        if self.protect != "label_dp" and self.epsilon is not None:
            yield Problem(("epsilon",), "belongs to protect: label_dp")
        if self.noise and self.clip is None:
            yield Problem(("clip",), "is missing: noise is measured by it, for example 1.0")


class NetCompare(Section):
    """Several seeds, several methods, ablations and sizes of the overlap: one job, one table.

    Every seed also deals new test rows, the first one those of the job. `overlap` lists parts of the common
    training rows that are used as common; 1.0 is always one of them. Without `algorithms`, a split network is
    compared with B alone, and a model of B's own with every other one.
    """

    seeds: int = Field(default=5, ge=2, le=50)
    algorithms: Annotated[tuple[Method, ...] | None, Listed] = None
    ablation: bool = False
    overlap: Annotated[tuple[Fraction, ...], Listed] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One training of a split network within a job.

    Attributes:
        number: From 0.
        seed: Of networks, orders and validation rows.
        split_seed: Which rows are test rows.
        overlap: Part of the common training rows that is used.
    """

    number: int
    seed: int
    split_seed: int
    overlap: float


def _at_home(values: object) -> object:
    """Move keys to the section where they belong, from the top, too, unless they stand there already."""
    if not isinstance(values, Mapping):
        return values
    moved: dict[str, Any] = dict(values)
    for home, names in {**_HOMES, "train": frozenset(NetTrain.model_fields)}.items():
        for section in (*_HOMES, "train"):
            moved = _moved(moved, section, home, names) if section != home else moved
        moved = _down(moved, home, names)
    return _with_epsilon(moved)


def _moved(values: dict[str, Any], section: str, home: str, names: frozenset[str]) -> dict[str, Any]:
    given = values.get(section)
    if not isinstance(given, Mapping) or not isinstance(values.get(home, {}), Mapping):
        return values
    found = _down({**given, home: values.get(home, {})}, home, names)
    target = found.pop(home)
    return {**values, section: found, home: target} if target else values


def _down(values: dict[str, Any], home: str, names: frozenset[str]) -> dict[str, Any]:
    """Move keys that stand beside a section into it."""
    target = values.get(home, {})
    if not isinstance(target, Mapping):
        return values
    movable = {key: value for key, value in values.items() if key in names and key not in target}
    if not movable:
        return values
    rest = {key: value for key, value in values.items() if key not in movable}
    return {**rest, home: {**target, **movable}}


def _with_epsilon(values: dict[str, Any]) -> dict[str, Any]:
    """Read `protect: label_dp(1.0)` as protect and epsilon."""
    privacy = values.get("privacy")
    protect = privacy.get("protect") if isinstance(privacy, Mapping) else None
    found = _LABEL_DP.fullmatch(protect.strip()) if isinstance(protect, str) else None
    if found is None or not isinstance(privacy, Mapping):
        return values
    split = {**privacy, "protect": "label_dp", "epsilon": privacy.get("epsilon", float(found[1]))}
    return {**values, "privacy": split}


class NetJob(JobBase):
    """A job that trains networks.

    `splitnn` predicts with A, `jpl` and `fpd` leave a model that is B's alone, `local` is B without anybody.
    A coordinator may be named, as other jobs do, and has no part.
    """

    algorithm: Literal["splitnn", "jpl", "fpd", "local"]
    passive: Annotated[tuple[Name, ...], Listed] = ()
    coordinator: Name | None = None
    data: NetData
    model: NetModel = NetModel()
    train: NetTrain = NetTrain()
    privacy: NetPrivacy = NetPrivacy()
    jpl: JplTerms = JplTerms()
    compare: NetCompare | None = None

    @model_validator(mode="before")
    @classmethod
    def _everything_at_home(cls, values: object) -> object:
        return _at_home(values)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        if self.algorithm == "local" and self.passive:
            yield Problem(("passive",), "B alone has no passive party")
        if self.algorithm != "local" and not self.passive:
            yield Problem(("passive",), "needs at least one party")
        yield from self.named_twice()
        if not self.data.intercept:
            yield Problem(("data", "intercept"), "must be true: networks always have one")
        if not self.data.standardize:
            yield Problem(("data", "standardize"), "must be true: model.numbers says how numbers enter")
        if self.algorithm == "splitnn" and self.model.members > 1:
            yield Problem(
                ("model", "members"), "must be 1: only a model of B's alone is an average of several"
            )
        if self.algorithm != "splitnn" and self.data.validation_fraction == 0:
            yield Problem(("data", "validation_fraction"), "must be above 0: these rows say when to stop")
        if len(self.runs) > _MOST_RUNS:
            yield Problem(("compare",), f"asks for {len(self.runs)} runs; {_MOST_RUNS} are the most")

    @property
    def compared(self) -> tuple[Method, ...]:
        """The methods that a comparison trains; none without one."""
        if self.compare is None:
            return ()
        return self.compare.algorithms or _COMPARED.get(self.algorithm, _ALL)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every training of a split network that the job asks for; run 0 makes the job's own model."""
        first = self.train.seed
        if self.compare is None:
            return (Run(0, first, self.data.split_seed, 1.0),)
        overlaps = (1.0, *sorted({part for part in self.compare.overlap if part < 1.0}, reverse=True))
        pairs = [(at, part) for part in overlaps for at in range(self.compare.seeds)]
        split = self.data.split_seed
        return tuple(Run(number, first + at, split + at, part) for number, (at, part) in enumerate(pairs))

    @property
    def resumes(self) -> bool:
        """Every epoch is kept, and so is every model that was trained."""
        return True

    @property
    def patience(self) -> Patience:
        """How long a network trains."""
        train = self.train
        return Patience(train.batch_size, train.epochs, train.patience or train.epochs, train.stop)

    @property
    def scorers(self) -> tuple[str, ...]:
        """Only a split network is asked together with others."""
        return self.passive if self.algorithm == "splitnn" else ()

    @property
    def most_rounds(self) -> int:
        """Epochs of all runs of the split network."""
        return self.train.epochs * (len(self.runs) if self.passive else 1)

    def role_of(self, party: str) -> Role | None:
        """Return the role that the job gives to a party; a coordinator stands by."""
        return "coordinator" if party == self.coordinator else super().role_of(party)
