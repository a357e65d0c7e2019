"""Which student B trains at stage 2: its heads, its loss terms and their weights. Plain values, no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Literal, TypeAlias

from common.errors import ConfigError

Heads: TypeAlias = Literal["own", "joint"]
StopRule: TypeAlias = Literal["auc", "log_loss"]
Trust: TypeAlias = Literal["checked", "blind"]

MOST_MEMBERS = 32
MOST_FACTORS = 8


@dataclass(frozen=True, slots=True)
class Terms:
    """Weights of the loss terms (common/nets/jpl.py has the formulas); 0 switches a term off.

    The defaults differ from the paper where validation rows of two sets agreed: the B head follows the
    teacher too, and 0/1 labels of overlapped rows count a quarter beside its soft ones
    (docs/semi-federated.md). `PAPER` has the paper's.

    Attributes:
        labels_own: Cross-entropy of the B head on rows that only B has.
        labels_own_shared: The same on overlapped rows.
        teacher_own: KL from the teacher's prediction to the B head, on overlapped rows.
        labels: Cross-entropy of the heads on the imitation (Fed and A) on rows that only B has.
        labels_shared: The same on overlapped rows.
        teacher: KL from the teacher's prediction to these heads, on overlapped rows.
        contrast: InfoNCE of the imitation with the teacher's representations, on overlapped rows.
        similarity: Similarity structure of the imitation on rows that only B has.
        ranking_shared: Ranking of the B head after the Fed head, on overlapped rows.
        ranking: Ranking of the Fed head after the B head, on rows that only B has.
    """

    labels_own: float = 1.0
    labels_own_shared: float = 0.25
    teacher_own: float = 1.0
    labels: float = 1.0
    labels_shared: float = 0.25
    teacher: float = 1.0
    contrast: float = 0.1
    similarity: float = 0.1
    ranking_shared: float = 0.1
    ranking: float = 0.1

    def __post_init__(self) -> None:
        """Refuse weights that are none, and a loss without a term.

        Raises:
            ConfigError: A weight is negative or not finite, or all of them are 0.
        """
        for one in fields(self):
            value = getattr(self, one.name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"the weight {one.name} must be a finite number of at least 0")
        if not any(getattr(self, one.name) for one in fields(self)):
            raise ConfigError("a loss needs a term: all weights are 0")

    @property
    def from_teacher(self) -> bool:
        """Whether a term looks at what A handed over."""
        return any((self.teacher_own, self.teacher, self.contrast, self.similarity))

    def with_labels(self, factor: float) -> Terms:
        """Return the terms with the weights of all 0/1 labels multiplied."""
        return replace(self, **{name: factor * getattr(self, name) for name in _OF_LABELS})


_OF_LABELS = ("labels_own", "labels_own_shared", "labels", "labels_shared")
PAPER = Terms(labels_own_shared=1.0, teacher_own=0.0, labels_shared=1.0)


@dataclass(frozen=True, slots=True)
class Recipe:
    """One kind of student.

    Attributes:
        heads: `own`: one network with the B head. `joint`: also the partial encoder, which imitates A, and
            the heads on its output; the prediction is σ of the mean of the B head's and the Fed head's
            logits.
        terms: Of the loss; those of heads that are not there do not count.
        temperature: τ of the contrast.
        beta: Weight of the rows that only B has; None for their number over that of the overlapped rows,
            which weighs all rows alike.
        members: Networks with seeds of their own whose logits are averaged.
        label_factors: One student is trained for each, with the weights of the 0/1 labels multiplied by it;
            the one with the best score on the validation rows is kept. A label is a single draw from the
            chance that a good teacher knows, and so the worse target.
        trust: `checked`: a teacher that does not rank the overlapped validation rows better than the same
            student does without it, by more than one standard error, has nothing to teach, and that student
            is kept. `blind`: it is followed anyway.
    """

    heads: Heads = "joint"
    terms: Terms = field(default_factory=Terms)
    temperature: float = 0.1
    beta: float | None = None
    members: int = 1
    label_factors: tuple[float, ...] = (1.0,)
    trust: Trust = "blind"

    def __post_init__(self) -> None:
        """Refuse numbers out of range.

        Raises:
            ConfigError: A number is out of its range.
        """
        if self.heads not in ("own", "joint"):
            raise ConfigError("heads are own or joint")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ConfigError("the temperature must be a finite number above 0")
        if self.beta is not None and not (math.isfinite(self.beta) and self.beta >= 0):
            raise ConfigError("beta must be a finite number of at least 0")
        if not 1 <= self.members <= MOST_MEMBERS:
            raise ConfigError(f"a student has 1 to {MOST_MEMBERS} members")
        if self.trust not in ("checked", "blind"):
            raise ConfigError("trust is checked or blind")
        if not 1 <= len(self.label_factors) <= MOST_FACTORS:
            raise ConfigError(f"1 to {MOST_FACTORS} factors of the labels can be tried")
        if not all(math.isfinite(one) and one > 0 for one in self.label_factors):
            raise ConfigError("a factor of the labels must be a finite number above 0")

    @property
    def tried(self) -> tuple[Recipe, ...]:
        """The recipes to choose from, one for each factor of the labels."""
        return tuple(replace(self, label_factors=(one,)) for one in self.label_factors)

    @property
    def untaught(self) -> Recipe:
        """The same student with nothing from the teacher, and its labels at full weight."""
        terms = replace(
            self.terms,
            teacher_own=0.0,
            teacher=0.0,
            contrast=0.0,
            similarity=0.0,
            labels_own_shared=max(1.0, self.terms.labels_own_shared),
            labels_shared=max(1.0, self.terms.labels_shared),
        )
        return replace(self, terms=terms, label_factors=(1.0,), trust="blind")

    @property
    def weighed(self) -> Recipe:
        """The same student with the factor, its only one, in the weights."""
        (factor,) = self.label_factors
        return replace(self, terms=self.terms.with_labels(factor), label_factors=(1.0,))

    @property
    def needs_teacher(self) -> bool:
        """Whether it can be trained only with what A handed over."""
        return self.terms.from_teacher


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a network trains.

    Attributes:
        batch_size: Rows of a step.
        most_epochs: Passes over the training rows at most.
        patience: Epochs without a better validation score after which it ends; the best one is kept.
        stop: The score: the largest AUC, or the smallest log loss.
    """

    batch_size: int = 512
    most_epochs: int = 40
    patience: int = 3
    stop: StopRule = "auc"

    def __post_init__(self) -> None:
        """Refuse numbers out of range.

        Raises:
            ConfigError: A number is out of its range.
        """
        if min(self.batch_size, self.most_epochs, self.patience) < 1:
            raise ConfigError("batch_size, most_epochs and patience must be at least 1")
        if self.stop not in ("auc", "log_loss"):
            raise ConfigError("stop must be auc or log_loss")
