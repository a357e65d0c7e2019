"""Metrics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ks_2samp

from common.errors import NumericError
from common.glm.metrics import classification_metrics, regression_metrics


def test_regression_metrics_are_the_textbook_ones() -> None:
    found = regression_metrics(np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 3.0]))
    assert found == pytest.approx(
        {"mse": 2 / 3, "rmse": math.sqrt(2 / 3), "mae": 2 / 3, "r2": 1 - 2 / (14 / 3)}
    )


def test_r2_of_one_row_is_undefined_and_not_a_warning() -> None:
    assert math.isnan(regression_metrics(np.array([1.0]), np.array([1.0]))["r2"])


def test_classification_metrics_agree_with_scipy_and_by_hand() -> None:
    random = np.random.default_rng(2)
    y = (random.random(300) < 0.4).astype(np.float64)
    scores = random.normal(size=300) + y
    probabilities = 1 / (1 + np.exp(-scores))
    found = classification_metrics(y, scores, probabilities)
    ones, zeros = scores[y == 1], scores[y == 0]
    assert found["auc"] == pytest.approx(np.mean(ones[:, None] > zeros[None, :]))
    assert found["ks"] == pytest.approx(ks_2samp(ones, zeros).statistic)
    assert found["accuracy"] == pytest.approx(np.mean((probabilities >= 0.5) == y))
    likelihood = np.where(y == 1, probabilities, 1 - probabilities)
    assert found["log_loss"] == pytest.approx(-np.log(likelihood).mean())


def test_one_class_alone_leaves_auc_and_ks_undefined() -> None:
    found = classification_metrics(np.ones(4), np.arange(4.0), np.full(4, 0.7))
    assert math.isnan(found["auc"])
    assert math.isnan(found["ks"])
    assert found["accuracy"] == 1.0


@pytest.mark.parametrize("scores", [np.array([]), np.array([np.nan])])
def test_no_rows_or_a_score_that_is_not_finite_is_an_error(scores: np.ndarray) -> None:
    with pytest.raises(NumericError):
        regression_metrics(np.zeros(len(scores)), scores)
