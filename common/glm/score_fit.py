"""The pooled optimum of a loss of scores: what one party's columns, or all of them together, could reach."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from common.glm.feature_rows import FeatureRows
from common.glm.score_losses import LossName, loss_named, penalty_named
from common.types import Floats

_MOST_STEPS = 5_000
_GRADIENT_TOLERANCE = 1e-9


def score_objective(X: FeatureRows, y: Floats, weights: Floats, penalties: Floats, loss: LossName) -> float:
    """Return the objective in mean form; one l2 for each column."""
    scores = X.scores(np.arange(X.shape[0]), weights)
    return loss_named(loss).mean(scores, y) + penalty_named(loss, penalties).value(weights)


def fit_scores(X: FeatureRows, y: Floats, penalties: Floats, loss: LossName) -> Floats:
    """Return weights where the objective's gradient vanishes, (d,): the optimum of a convex one.

    Args:
        X: (n, d), an intercept's column among them.
        y: As the loss takes it, (n,).
        penalties: l2 of each column, (d,).
        loss: Of the job.
    """
    kind, penalty, rows = loss_named(loss), penalty_named(loss, penalties), np.arange(X.shape[0])

    def value_and_gradient(weights: Floats) -> tuple[float, Floats]:
        scores = X.scores(rows, weights)
        gradient = X.combine_all(kind.thetas(scores, y)) / len(y) + penalty.gradient(weights)
        return kind.mean(scores, y) + penalty.value(weights), gradient

    options = {"maxiter": _MOST_STEPS, "gtol": _GRADIENT_TOLERANCE, "ftol": 0.0}
    start = np.zeros(X.shape[1])
    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x, dtype=np.float64)
