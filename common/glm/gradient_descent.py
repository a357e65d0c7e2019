"""The update of one party's block of weights: w ← w − η (g/n + l2·w)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from common.errors import NumericError
from common.types import Floats


@dataclass(frozen=True, slots=True)
class GradientStep:
    """One party's share of gradient descent on (1/n) Σ loss + ½ Σ l2_j w_j².

    Attributes:
        features: Names of the columns, for messages.
        learning_rate: η.
        penalties: l2 of each column, shape (d,); 0 for an intercept that is not penalised.
    """

    features: tuple[str, ...]
    learning_rate: float
    penalties: Floats

    def apply(self, weights: Floats, gradient_sum: Floats, rows: int) -> Floats:
        """Return the next weights.

        Args:
            weights: Shape (d,).
            gradient_sum: X'd over the rows of the batch, shape (d,).
            rows: Rows in the batch.

        Raises:
            NumericError: A weight is no longer finite; names its feature.
        """
        stepped = weights - self.learning_rate * (gradient_sum / rows + self.penalties * weights)
        broken = np.flatnonzero(~np.isfinite(stepped))
        if broken.size:
            raise NumericError(
                f"the weight of feature {self.features[int(broken[0])]!r} is no longer finite",
                advice="lower train.learning_rate, or standardize the features",
            )
        return stepped

    def penalty(self, weights: Floats) -> float:
        """Return ½ Σ l2_j w_j²: this party's part of the regulariser, in mean form."""
        return float(0.5 * np.sum(self.penalties * weights**2))
