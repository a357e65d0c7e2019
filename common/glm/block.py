"""One party's block of the weights in memory that several threads share (Zhang et al. 2021, Algorithm 3).

v = (stochastic gradient of the update rule) + ∇g(w_l);   w_l ← w_l − η v
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from common.errors import NumericError
from common.glm.feature_rows import FeatureRows
from common.glm.score_losses import Penalty
from common.glm.update_rules import UpdateRule
from common.types import Floats, Ints


@dataclass(frozen=True, slots=True)
class BlockState:
    """What a restart needs of a block.

    Attributes:
        weights: w_l, (d,).
        tables: Of the update rule, by their names.
    """

    weights: Floats = field(repr=False)
    tables: Mapping[str, Floats] = field(repr=False)


class Block:
    """Our columns, our weights from zero, and the update that threads apply to them.

    No lock is taken around the weights, and none is needed (Recht et al. 2011; Zhang et al. 2021,
    assumption on inconsistent reads):

    * An aligned 64-bit load or store is never torn on the machines numpy runs on, so every coordinate that a
      thread reads is one that some thread wrote.
    * A gradient may be taken from coordinates of different ages. That is the staleness which the bound on
      updates in flight limits, and which the analysis allows.
    * Two threads that subtract from one coordinate at the same moment can lose one of the two. A lost
      step is a step not taken; the next gradient is taken from where the weights are, and no other number
      relies on it. What does rely on another number, SAGA's average, is guarded in the rule.
    """

    def __init__(
        self, features: FeatureRows, names: tuple[str, ...], rule: UpdateRule, penalty: Penalty
    ) -> None:
        self.features = features
        self.rule = rule
        self.penalty = penalty
        self.weights: Floats = np.zeros(features.shape[1])
        self.names = names

    def scores(self, rows: Ints) -> Floats:
        """Return u_l = w_l·x_l,i of the given rows, (b,), for masking."""
        return self.features.scores(rows, self.weights)

    def heaviest(self, features: FeatureRows, rows: Ints, scores: Floats) -> str:
        """Return the feature that weighs most in the largest of some rows' scores."""
        largest = rows[[int(np.argmax(np.abs(scores)))]]  # argmax finds NaN before anything else
        return self.names[int(np.argmax(np.abs(features.dense(largest)[0] * self.weights)))]

    def apply(self, rows: Ints, thetas: Floats, step: float) -> None:
        """Move the weights by one update; safe to call from several threads.

        Raises:
            NumericError: The update is not finite; names a feature. The weights stay as they are.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported below, by its name
            self._step(self.rule.gradient(rows, thetas), step)

    def apply_sums(self, rows: Ints, sums: Floats, step: float) -> None:
        """Move the weights as `apply` does, from sums over the batch in place of θ (see the update rules)."""
        with np.errstate(over="ignore", invalid="ignore"):
            self._step(self.rule.gradient_of_sums(rows, sums), step)

    def _step(self, gradient: Floats, step: float) -> None:
        gradient += self.penalty.gradient(self.weights)
        gradient *= step
        size = float(gradient @ gradient)
        if not math.isfinite(size):
            broken = int(np.argmax(np.abs(gradient)))  # argmax finds NaN before anything else
            raise NumericError(
                f"the update of feature {self.names[broken]!r} is no longer finite",
                advice="lower train.learning_rate, or standardize the features",
            )
        np.subtract(self.weights, gradient, out=self.weights)

    def state(self) -> BlockState:
        """Return a copy of everything that updates change; consistent only while no thread applies one."""
        return BlockState(self.weights.copy(), self.rule.tables())

    def restore(self, state: BlockState) -> None:
        """Go back to a state, in place: threads keep the same memory."""
        self.weights[:] = state.weights
        self.rule.restore(state.tables)
