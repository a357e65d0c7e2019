"""What a network looks like and how it is trained: plain values, no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from common.errors import ConfigError

Schedule: TypeAlias = Literal["constant", "cosine", "halving"]

# Wider or deeper ones are no use for rows of a table, and a peer must not ask for the memory.
_MOST_UNITS = 4096
_MOST_LAYERS = 16
# By `halving` the rate goes down to 1/16 over a training run.
_HALVINGS = 4


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """The input of a party's network, as its fields are encoded.

    Attributes:
        sizes: Rows of the embedding table for each embedded field.
        widths: Index columns for each embedded field: 1, or more for a field with several values.
        numbers: Columns that enter as they are.
    """

    sizes: tuple[int, ...]
    widths: tuple[int, ...]
    numbers: int

    def __post_init__(self) -> None:
        """Refuse what is no input.

        Raises:
            ConfigError: A count is out of its range, or there is no column.
        """
        counts = (*self.sizes, *self.widths)
        if len(self.sizes) != len(self.widths) or any(one < 1 for one in counts) or self.numbers < 0:
            raise ConfigError("a field has a table of at least one row and at least one index column")
        if not counts and not self.numbers:
            raise ConfigError("a network needs at least one column")

    @property
    def table_rows(self) -> int:
        """Rows of the party's one embedding table; the last one is the padding and stays zero."""
        return sum(self.sizes) + 1

    @property
    def padding(self) -> int:
        """The index that stands for no value."""
        return sum(self.sizes)

    def inputs(self, embedding_dim: int) -> int:
        """Return the width of the first layer's input."""
        return len(self.sizes) * embedding_dim + self.numbers


@dataclass(frozen=True, slots=True)
class NetShape:
    """Layers of the networks of all parties of a job.

    Attributes:
        embedding_dim: Length of an embedding.
        bottom: Units of a party's own layers; the last is its width at the cut layer.
        top: Hidden units of the label holder's layers above the cut layer; one logit follows.
        dropout: Share of units left out after each hidden layer while training, in [0, 1).
        embedding_scale: Standard deviation of new embeddings. Small, so that a category that never came in
            training says nothing.
    """

    embedding_dim: int = 8
    bottom: tuple[int, ...] = (64, 32)
    top: tuple[int, ...] = (32,)
    dropout: float = 0.2
    embedding_scale: float = 0.05

    def __post_init__(self) -> None:
        """Refuse what cannot be built.

        Raises:
            ConfigError: A size is out of its range.
        """
        layers = (self.embedding_dim, *self.bottom, *self.top)
        if not self.bottom or len(layers) > _MOST_LAYERS:
            raise ConfigError(f"a network needs 1 to {_MOST_LAYERS} layers, the bottom at least one")
        if any(not 1 <= units <= _MOST_UNITS for units in layers):
            raise ConfigError(f"a layer has 1 to {_MOST_UNITS} units")
        if not 0.0 <= self.dropout < 1.0:
            raise ConfigError("dropout must be at least 0 and below 1")
        if not (math.isfinite(self.embedding_scale) and self.embedding_scale >= 0):
            raise ConfigError("embedding_scale must be a finite number of at least 0")

    @property
    def width(self) -> int:
        """A party's width at the cut layer."""
        return self.bottom[-1]


@dataclass(frozen=True, slots=True)
class Optimisation:
    """How a network learns: Adam (Kingma and Ba 2015), for embeddings on the rows of a batch alone.

    Attributes:
        learning_rate: Adam's step size at the beginning.
        schedule: `constant`; `cosine` down to 0 at `horizon`; `halving`, 4 times evenly before `horizon`.
        horizon: Planned steps (batches) of the training; 0 only for `constant`.
        embedding_l2: λ of λ·(1/b)·Σ‖e‖² over the embeddings that a batch of b rows looks up.
        weight_decay: Of the layers' weights, decoupled from the gradient (Loshchilov and Hutter 2019).
        l2: Of (l2/2)·‖W‖² over the layers' weights, biases left out, as a part of the loss.
    """

    learning_rate: float = 1e-3
    schedule: Schedule = "constant"
    horizon: int = 0
    embedding_l2: float = 1e-3
    weight_decay: float = 0.0
    l2: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be learnt with.

        Raises:
            ConfigError: A number is out of its range, or a schedule has no horizon.
        """
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ConfigError("learning_rate must be a finite number above 0")
        for name in ("embedding_l2", "weight_decay", "l2"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name} must be a finite number of at least 0")
        if self.schedule not in ("constant", "cosine", "halving"):
            raise ConfigError("schedule must be constant, cosine or halving")
        if self.schedule != "constant" and self.horizon < 1:
            raise ConfigError(f"schedule {self.schedule} needs to know how many steps are planned")

    def rate(self, step: int) -> float:
        """Return the step size of a step, counted from 0; beyond the horizon it stays what it was."""
        done = min(1.0, step / self.horizon) if self.horizon else 0.0
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))
        if self.schedule == "halving":
            return self.learning_rate * 0.5 ** int(min(done * (_HALVINGS + 1), _HALVINGS))
        return self.learning_rate


@dataclass(frozen=True, slots=True)
class NetSettings:
    """One party's half of a network: shape and optimisation are the same at all parties.

    Attributes:
        seed: Of first weights and dropout. In production each party's own, from the operating system; equal
            seeds serve the comparison with one process.
    """

    shape: NetShape = field(default_factory=NetShape)
    optimisation: Optimisation = field(default_factory=Optimisation)
    seed: int = field(default=0, repr=False)
