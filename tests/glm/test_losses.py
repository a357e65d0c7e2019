"""The quadratic losses, and the distance between the Taylor form and the exact logistic loss."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from common.errors import DataError
from common.glm.labels import signed_labels
from common.glm.logistic import fit_logistic, fit_taylor, logistic_objective
from common.glm.losses import SQUARED, TAYLOR_LOGISTIC, logistic_loss, probabilities

RNG = np.random.default_rng(3)
X = RNG.normal(size=(300, 4))
Y = np.where(X @ [1.0, -0.5, 0.2, 0.0] + RNG.logistic(size=300) > 0.3, 1.0, -1.0)


def test_the_squared_loss_is_half_the_squared_residual():
    scores = RNG.normal(size=300)
    assert SQUARED.mean(scores, Y) == pytest.approx(0.5 * np.mean((scores - Y) ** 2))


def test_the_taylor_loss_is_hardys_expansion_and_its_residual_the_derivative():
    scores = RNG.normal(size=300)
    expansion = np.log(2) - 0.5 * Y * scores + scores**2 / 8
    assert TAYLOR_LOGISTIC.mean(scores, Y) == pytest.approx(expansion.mean())
    assert TAYLOR_LOGISTIC.residuals(scores, Y) == pytest.approx(scores / 4 - Y / 2)


def test_near_zero_the_taylor_loss_is_the_logistic_loss():
    scores = 1e-3 * RNG.normal(size=300)
    assert TAYLOR_LOGISTIC.mean(scores, Y) == pytest.approx(logistic_loss(scores, Y), abs=1e-12)


def test_the_taylor_fit_has_a_zero_gradient():
    w = fit_taylor(X, Y, 0.01, "none")
    gradient = X.T @ TAYLOR_LOGISTIC.residuals(X @ w, Y) / 300 + 0.01 * w
    assert np.abs(gradient).max() < 1e-12


@pytest.mark.parametrize("intercept", ["none", "free", "penalized"])
def test_the_exact_fit_has_a_zero_gradient(intercept):
    w = fit_logistic(X, Y, 0.01, intercept)
    design = X if intercept == "none" else np.column_stack([X, np.ones(300)])
    penalty = np.full(len(w), 0.01)
    if intercept == "free":
        penalty[-1] = 0
    gradient = -design.T @ (Y * probabilities(-Y * (design @ w))) / 300 + penalty * w
    assert np.abs(gradient).max() < 1e-6
    worse = w + 0.01
    assert logistic_objective(design, Y, w, penalty) < logistic_objective(design, Y, worse, penalty)


def test_without_a_penalty_the_exact_fit_is_the_unpenalised_one():
    expected = LogisticRegression(C=1e12, tol=1e-10, max_iter=10_000).fit(X, Y)
    assert fit_logistic(X, Y, 0.0, "free")[:-1] == pytest.approx(expected.coef_[0], abs=1e-4)


@pytest.mark.parametrize("low", [0, -1])
def test_labels_become_minus_and_plus_one(low):
    labels = signed_labels(np.array([low, 1, 1, low], dtype=float), "y")
    assert labels.values.tolist() == [-1, 1, 1, -1]
    assert labels.as_01.tolist() == [0, 1, 1, 0]
    assert f"label 1 is the positive class (+1), {low}" in labels.describe()


@pytest.mark.parametrize(
    ("column", "words"), [([1, 2], "neither"), ([0, 1, 2], "3 different"), ([1, 1], "only one value")]
)
def test_other_labels_are_refused(column, words):
    with pytest.raises(DataError, match=words):
        signed_labels(np.array(column, dtype=float), "y")
