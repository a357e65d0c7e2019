"""Ridge regression in the clear, against scikit-learn and against itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from common.errors import NumericError
from common.glm.ridge import (
    Intercept,
    fit_ridge,
    penalties,
    pooled_gradient_descent,
    ridge_objective,
    with_intercept,
)

RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(80, 5)) * [1.0, 2.0, 0.5, 1.0, 3.0] + 4.0
Y = X @ [1.0, -2.0, 0.0, 0.5, 0.1] + 7.0 + RANDOM.normal(size=80)


@pytest.mark.parametrize("l2", [1e-4, 0.1, 10.0])
def test_the_closed_form_is_scikit_learns_ridge_at_alpha_l2_times_n(l2: float) -> None:
    theirs = Ridge(alpha=l2 * len(Y), solver="svd").fit(X, Y)
    ours = fit_ridge(X, Y, l2, "free")
    assert np.allclose(ours, [*theirs.coef_, theirs.intercept_], rtol=1e-9, atol=1e-9)
    bare = Ridge(alpha=l2 * len(Y), solver="svd", fit_intercept=False).fit(X, Y)
    assert np.allclose(fit_ridge(X, Y, l2, "none"), bare.coef_, rtol=1e-9, atol=1e-9)


def test_a_penalised_intercept_is_one_more_column_of_ones() -> None:
    ones = np.column_stack([X, np.ones(len(Y))])
    assert np.allclose(fit_ridge(X, Y, 0.1, "penalized"), fit_ridge(ones, Y, 0.1, "none"))


def test_without_penalty_it_is_least_squares_also_with_a_repeated_column() -> None:
    theirs = LinearRegression().fit(X, Y)
    assert np.allclose(fit_ridge(X, Y, 0.0, "free"), [*theirs.coef_, theirs.intercept_])
    twice = np.column_stack([X, X[:, 0]])
    weights = fit_ridge(twice, Y, 0.0, "free")
    assert np.allclose(twice @ weights[:-1] + weights[-1], theirs.predict(X))


@pytest.mark.parametrize("intercept", ["none", "free", "penalized"])
def test_no_step_away_from_the_closed_form_lowers_the_objective(intercept: Intercept) -> None:
    weights = fit_ridge(X, Y, 0.05, intercept)
    design, penalty = with_intercept(X, intercept), penalties(5, 0.05, intercept)
    best = ridge_objective(design, Y, weights, penalty)
    for step in RANDOM.normal(size=(50, len(weights))) * 1e-3:
        assert ridge_objective(design, Y, weights + step, penalty) > best


def test_gradient_descent_arrives_at_the_closed_form() -> None:
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    design, penalty = with_intercept(scaled, "free"), penalties(5, 0.1, "free")
    losses, weights = pooled_gradient_descent(design, Y, penalty, 0.5, 400)
    assert np.allclose(weights, fit_ridge(scaled, Y, 0.1, "free"), atol=1e-10)
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(losses))


def test_gradient_descent_is_the_papers_update_in_its_sum_form() -> None:
    rate, l2_sum = 1e-3, 0.4
    w = np.zeros(5)
    expected = []
    for _ in range(10):
        d = X @ w - Y
        expected.append(0.5 * d @ d + 0.5 * l2_sum * w @ w)
        w = w - rate * (X.T @ d + l2_sum * w) / len(Y)
    losses, weights = pooled_gradient_descent(X, Y, penalties(5, l2_sum / len(Y), "none"), rate, 10)
    assert np.allclose(np.array(losses) * len(Y), expected, rtol=1e-13)
    assert np.allclose(weights, w, rtol=1e-13)


def test_a_batch_counts_by_its_own_size() -> None:
    half = np.arange(40)
    batched = pooled_gradient_descent(X, Y, penalties(5, 0.1, "none"), 1e-3, 3, lambda step: half)
    alone = pooled_gradient_descent(X[:40], Y[:40], penalties(5, 0.1, "none"), 1e-3, 3)
    assert np.allclose(batched.weights, alone.weights)
    assert np.allclose(batched.losses, alone.losses)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_diverging_run_is_an_error_and_not_a_model() -> None:
    with pytest.raises(NumericError):
        pooled_gradient_descent(X, Y, penalties(5, 0.1, "none"), 1e3, 400)
