"""Ridge regression in the clear: what a lossless federation must reproduce.

Objective, for all solvers:  J(w) = (1/n) Σ_i ½(x_i·w − y_i)² + ½ Σ_j p_j w_j²

with p_j = l2, except 0 for an intercept that is not penalised. scikit-learn's Ridge(alpha) is l2 = alpha/n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from common.errors import NumericError
from common.types import Floats, Ints

# "free" is not penalised. An intercept is a column of ones, after the features.
Intercept: TypeAlias = Literal["none", "free", "penalized"]

# Rows that are worked on at a time: some megabytes.
_BLOCK_ROWS = 1 << 14


class Descent(NamedTuple):
    """What a gradient descent leaves behind.

    Attributes:
        losses: One a round, in the mean form J, at the weights before the round's update.
        weights: The last weights, (d,).
    """

    losses: tuple[float, ...]
    weights: Floats


def with_intercept(X: Floats, intercept: Intercept) -> Floats:
    """Return X, with a column of ones after its own columns unless there is no intercept."""
    if intercept == "none":
        return X
    return np.column_stack([X, np.ones(len(X))])


def penalties(features: int, l2: float, intercept: Intercept) -> Floats:
    """Return p, one entry for each weight; the intercept's comes last if there is one."""
    if intercept == "none":
        return np.full(features, l2)
    return np.append(np.full(features, l2), l2 if intercept == "penalized" else 0.0)


def ridge_objective(X: Floats, y: Floats, weights: Floats, penalty: Floats) -> float:
    """Return J(w) in the mean form; X has the intercept's column if there is one."""
    d = X @ weights - y
    return float(0.5 * (d @ d) / len(y) + 0.5 * (penalty @ weights**2))


def fit_ridge(X: Floats, y: Floats, l2: float, intercept: Intercept) -> Floats:
    """Return the weights that minimise J, in closed form; with l2 = 0, the shortest of them.

    Args:
        X: (n, d), without the intercept's column.
        y: (n,).
        l2: At least 0.
        intercept: Whether there is one, and whether it is penalised.

    Returns:
        (d,) or, with an intercept, (d + 1,) with the intercept last.
    """
    penalty = penalties(X.shape[1], l2, intercept)
    # min ‖Aw − b‖² with A = [X/√n; diag(√p)] has J's solution, and a squared condition number is avoided.
    # A triangle stands for the rows, so that memory holds a block of them beside X, not a second X.
    triangle = np.zeros((0, len(penalty) + 1))
    for start in range(0, len(y), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        block = np.column_stack([with_intercept(X[rows], intercept), y[rows]]) / np.sqrt(len(y))
        triangle = np.asarray(np.linalg.qr(np.vstack([triangle, block]), mode="r"))
    stacked = np.vstack([triangle[:, :-1], np.diag(np.sqrt(penalty))])
    target = np.append(triangle[:, -1], np.zeros(len(penalty)))
    weights = np.linalg.lstsq(stacked, target, rcond=None)[0]
    return _finite(weights)


def pooled_gradient_descent(
    X: Floats,
    y: Floats,
    penalty: Floats,
    learning_rate: float,
    rounds: int,
    rows_of: Callable[[int], Ints] | None = None,
) -> Descent:
    """Run the paper's update on pooled data: w ← w − η(X_Sᵀd/|S| + p∘w), from zero.

    Args:
        X: (n, d), all parties' columns side by side, the intercept's column among them.
        y: (n,).
        penalty: p, (d,).
        learning_rate: η.
        rounds: How many updates.
        rows_of: The batch S of a round (from 1); all rows when absent.
    """
    everything = np.arange(len(y), dtype=np.int64)
    weights = np.zeros(X.shape[1])
    losses = []
    for step in range(1, rounds + 1):
        S = everything if rows_of is None else rows_of(step)
        losses.append(ridge_objective(X[S], y[S], weights, penalty))
        d = X[S] @ weights - y[S]
        weights = weights - learning_rate * (X[S].T @ d / len(S) + penalty * weights)
    return Descent(tuple(losses), _finite(weights))


def _finite(weights: Floats) -> Floats:
    if not np.isfinite(weights).all():
        raise NumericError(
            "the weights are not finite", advice="lower the learning rate or scale the features"
        )
    return weights
