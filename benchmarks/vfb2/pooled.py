"""What a lossless federation must reach: the pooled optimum, by scikit-learn to tight tolerance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression

from common.glm.losses import logistic_loss
from common.types import Floats

# Newton steps converge quadratically: the objective is exact to rounding long before.
_TOLERANCE = 1e-13


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """An optimum, the intercept not penalised.

    Attributes:
        objective: Mean loss + l2/2 ‖w‖².
        weights: Of standardised columns.
    """

    objective: float
    weights: Floats
    intercept: float
    mean: Floats
    deviation: Floats

    def scores(self, features: Floats) -> Floats:
        """Return the scores of rows."""
        return (features - self.mean) / self.deviation @ self.weights + self.intercept


def fit(features: Floats, labels: Floats, l2: float) -> Fit:
    """Fit logistic regression on standardised columns, as every party standardises its own."""
    mean, deviation = features.mean(axis=0), features.std(axis=0)
    deviation = np.where(deviation > 1e-12, deviation, 1.0)
    scaled = (features - mean) / deviation
    model = LogisticRegression(
        C=1.0 / (l2 * len(labels)), solver="newton-cholesky", tol=_TOLERANCE, max_iter=200
    ).fit(scaled, labels)
    weights, intercept = model.coef_.ravel(), float(model.intercept_[0])
    objective = logistic_loss(scaled @ weights + intercept, labels) + 0.5 * l2 * float(weights @ weights)
    return Fit(objective, weights, intercept, mean, deviation)
