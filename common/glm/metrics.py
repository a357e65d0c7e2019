"""How good scores are, by scikit-learn's definitions; a metric that the rows cannot define is NaN."""

from __future__ import annotations

import math

import numpy as np
from sklearn import metrics

from common.errors import NumericError
from common.types import Floats


def regression_metrics(y: Floats, scores: Floats) -> dict[str, float]:
    """Return mse, rmse, mae and r2 of at least one row.

    Raises:
        NumericError: There is no row, or a score is not finite.
    """
    _check(scores)
    mse = float(metrics.mean_squared_error(y, scores))
    return {
        "mse": mse,
        "rmse": math.sqrt(mse),
        "mae": float(metrics.mean_absolute_error(y, scores)),
        "r2": float(metrics.r2_score(y, scores)) if len(y) > 1 else math.nan,
    }


def classification_metrics(y01: Floats, scores: Floats, probabilities: Floats) -> dict[str, float]:
    """Return auc, log_loss, accuracy (at probability ½) and ks of at least one row.

    Args:
        y01: Labels 0 and 1.
        scores: Anything that grows with the probability of 1.
        probabilities: Of 1, in [0, 1].

    Raises:
        NumericError: There is no row, or a score is not finite.
    """
    _check(scores)
    _check(probabilities)
    both = bool(np.any(y01 == 0) and np.any(y01 == 1))
    return {
        "auc": float(metrics.roc_auc_score(y01, scores)) if both else math.nan,
        "log_loss": float(metrics.log_loss(y01, probabilities, labels=[0, 1])),
        "accuracy": float(metrics.accuracy_score(y01, probabilities >= 0.5)),
        "ks": _kolmogorov_smirnov(y01, scores) if both else math.nan,
    }


def _kolmogorov_smirnov(y01: Floats, scores: Floats) -> float:
    # The largest distance between the two classes' distributions of scores.
    false_positive, true_positive, _ = metrics.roc_curve(y01, scores, drop_intermediate=False)
    return float(np.max(np.abs(true_positive - false_positive)))


def _check(scores: Floats) -> None:
    if len(scores) == 0:
        raise NumericError("there is no row to measure the model on")
    if not np.isfinite(scores).all():
        raise NumericError("a score of the model is not finite", advice="lower the learning rate")
