"""Logistic regression in the clear: the exact fit, and the one that the Taylor loss leads to.

Objective:  (1/n) Σ_i loss(x_i·w, y_i) + ½ Σ_j p_j w_j²,  y_i ∈ {−1, +1},

with the same p as in `common.glm.ridge`. scikit-learn's LogisticRegression(C) is l2 = 1/(n·C).
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from common.glm.losses import TAYLOR_LOGISTIC, logistic_loss
from common.glm.ridge import Intercept, fit_ridge, with_intercept
from common.types import Floats

_GRADIENT_TOLERANCE = 1e-10
_MOST_STEPS = 10_000


def fit_taylor(X: Floats, y: Floats, l2: float, intercept: Intercept) -> Floats:
    """Return the weights that minimise the Taylor objective: ridge regression on 2y, with 4·l2."""
    a, b = TAYLOR_LOGISTIC.curvature, TAYLOR_LOGISTIC.label_factor
    return fit_ridge(X, y * (b / a), l2 / a, intercept)


def fit_logistic(X: Floats, y: Floats, l2: float, intercept: Intercept) -> Floats:
    """Return the weights that minimise the exact objective, (d,) or, with an intercept last, (d + 1,)."""
    inverse_strength = np.inf if l2 == 0 else 1.0 / (len(y) * l2)
    model = LogisticRegression(
        C=inverse_strength,
        fit_intercept=intercept == "free",
        tol=_GRADIENT_TOLERANCE,
        max_iter=_MOST_STEPS,
    )
    # A penalised intercept is a column like any other.
    model.fit(X if intercept == "free" else with_intercept(X, intercept), y)
    weights = np.asarray(model.coef_[0], dtype=np.float64)
    return np.append(weights, model.intercept_) if intercept == "free" else weights


def logistic_objective(X: Floats, y: Floats, weights: Floats, penalty: Floats) -> float:
    """Return the exact objective in the mean form; X has the intercept's column if there is one."""
    return logistic_loss(X @ weights, y) + 0.5 * float(penalty @ weights**2)
