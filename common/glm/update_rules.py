"""The stochastic gradients of one block: SGD, SVRG, SAGA (Zhang et al. 2021, Algorithms 2 and 3).

    SGD    v = mean_i(θ_i x_i)
    SVRG   v = mean_i((θ_i − θ̃_i) x_i) + μ,      μ = (1/n) Σ_j θ̃_j x_j, θ̃ of a snapshot of all blocks
    SAGA   v = mean_i((θ_i − a_i) x_i) + avg,    avg = (1/n) Σ_j a_j x_j, then a_i ← θ_i

The penalty's gradient is added by the block. Tables hold scalars, n of them: a gradient is a scalar times
a row, and the rows are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Literal, Protocol, TypeAlias

import numpy as np

from common.errors import LocalProtocolError
from common.glm.feature_rows import FeatureRows
from common.types import Floats, Ints

RuleName: TypeAlias = Literal["sgd", "svrg", "saga"]


class UpdateRule(Protocol):
    """One party's block state of an update rule; several threads ask it for gradients."""

    @property
    def needs_reference(self) -> bool:
        """Whether θ̃ of all rows is needed before the updates of an epoch."""
        ...

    def gradient(self, rows: Ints, thetas: Floats) -> Floats:
        """Return v without the penalty, a new vector (d,), and move the tables."""
        ...

    def gradient_of_sums(self, rows: Ints, sums: Floats) -> Floats:
        """Return v as `gradient` does, where θ stays with its dominator.

        Args:
            rows: Of the batch.
            sums: Σ_i (θ_i − t_i) x_i, (d,), t being what the rule subtracts: 0, θ̃ or a.
        """
        ...

    def refer_to(self, thetas: Floats) -> None:
        """Take θ̃ of all rows, (n,)."""
        ...

    def refer_to_sums(self, sums: Floats) -> None:
        """Take Σ_j θ̃_j x_j over all rows, (d,), where θ̃ stays with its dominator."""
        ...

    def tables(self) -> Mapping[str, Floats]:
        """Return copies of what a restart needs."""
        ...

    def restore(self, tables: Mapping[str, Floats]) -> None:
        """Go back to what `tables` returned."""
        ...


class Sgd:
    """The plain stochastic gradient: no state."""

    needs_reference = False

    def __init__(self, features: FeatureRows) -> None:
        self._features = features

    def gradient(self, rows: Ints, thetas: Floats) -> Floats:
        """Return mean_i(θ_i x_i)."""
        return self._features.combine(rows, thetas) / len(rows)

    def gradient_of_sums(self, rows: Ints, sums: Floats) -> Floats:
        """Return their mean."""
        return sums / len(rows)

    def refer_to(self, thetas: Floats) -> None:
        """Refuse: there is nothing to refer to."""
        raise LocalProtocolError("sgd has no use for derivatives of a snapshot")

    refer_to_sums = refer_to

    def tables(self) -> Mapping[str, Floats]:
        """Return nothing."""
        return {}

    def restore(self, tables: Mapping[str, Floats]) -> None:
        """Do nothing."""


class Svrg:
    """Variance reduced by the full gradient at a snapshot."""

    needs_reference = True

    def __init__(self, features: FeatureRows) -> None:
        self._features = features
        # Both at once, so that no thread ever pairs the new table with the old mean.
        self._reference: tuple[Floats, Floats] | None = None
        self._mean: Floats | None = None  # where θ̃ itself is not here

    def gradient(self, rows: Ints, thetas: Floats) -> Floats:
        """Return mean_i((θ_i − θ̃_i) x_i) + μ.

        Raises:
            LocalProtocolError: θ̃ has not come yet.
        """
        if self._reference is None:
            raise LocalProtocolError("svrg has no derivatives of a snapshot yet")
        table, mean = self._reference
        return self._features.combine(rows, thetas - table[rows]) / len(rows) + mean

    def gradient_of_sums(self, rows: Ints, sums: Floats) -> Floats:
        """Return their mean + μ.

        Raises:
            LocalProtocolError: Σ θ̃_j x_j has not come yet.
        """
        if self._mean is None:
            raise LocalProtocolError("svrg has no gradient of a snapshot yet")
        return sums / len(rows) + self._mean

    def refer_to_sums(self, sums: Floats) -> None:
        """Compute μ."""
        self._mean = sums / self._features.shape[0]

    def refer_to(self, thetas: Floats) -> None:
        """Take θ̃ and compute μ."""
        self._reference = (thetas, self._features.combine_all(thetas) / len(thetas))

    def tables(self) -> Mapping[str, Floats]:
        """Return θ̃, from which μ follows; or μ, where θ̃ is not here."""
        if self._mean is not None:
            return {"mean": self._mean.copy()}
        return {} if self._reference is None else {"reference": self._reference[0].copy()}

    def restore(self, tables: Mapping[str, Floats]) -> None:
        """Go back to a θ̃ or a μ, or to none."""
        self._reference = None
        self._mean = tables["mean"].copy() if "mean" in tables else None
        if "reference" in tables:
            self.refer_to(tables["reference"].copy())


class Saga:
    """Variance reduced by the latest θ of every row, from a table of zeros.

    The average must stay the average of the table: weights forgive a lost update, because the next gradient
    is taken where they are, but what the average lost would be missing for ever. So a table entry and the
    average change together, under a lock that is held for one batch of this party and for nothing else.
    """

    needs_reference = False

    def __init__(self, features: FeatureRows) -> None:
        self._features = features
        rows, columns = features.shape
        self._table: Floats = np.zeros(rows)
        self._average: Floats = np.zeros(columns)
        self._lock = Lock()

    def gradient(self, rows: Ints, thetas: Floats) -> Floats:
        """Return mean_i((θ_i − a_i) x_i) + avg, then let a_i and avg follow."""
        with self._lock:
            change = self._features.combine(rows, thetas - self._table[rows])
            gradient = change / len(rows) + self._average
            self._table[rows] = thetas
            self._average += change / len(self._table)
        return gradient

    def gradient_of_sums(self, rows: Ints, sums: Floats) -> Floats:
        """Return their mean + avg, then let avg follow; the table is at the dominator, the only one."""
        with self._lock:
            gradient = sums / len(rows) + self._average
            self._average += sums / len(self._table)
        return gradient

    def refer_to(self, thetas: Floats) -> None:
        """Refuse: the table grows with the updates."""
        raise LocalProtocolError("saga has no use for derivatives of a snapshot")

    refer_to_sums = refer_to

    def tables(self) -> Mapping[str, Floats]:
        """Return the table and the average; the latter as it is, with its rounding errors."""
        with self._lock:
            return {"table": self._table.copy(), "average": self._average.copy()}

    def restore(self, tables: Mapping[str, Floats]) -> None:
        """Go back to a table, or to zeros."""
        with self._lock:
            self._table[:] = tables.get("table", 0.0)
            self._average[:] = tables.get("average", 0.0)


def rule_named(name: RuleName, features: FeatureRows) -> UpdateRule:
    """Return the state of the update rule that a job names, for one party's rows."""
    rules: dict[RuleName, type[Sgd] | type[Svrg] | type[Saga]] = {"sgd": Sgd, "svrg": Svrg, "saga": Saga}
    return rules[name](features)
