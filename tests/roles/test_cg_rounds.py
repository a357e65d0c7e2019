"""Conjugate gradients as a loop without network, row-wise and Gram: where they end, and how precisely."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.glm.logistic import fit_taylor
from common.glm.losses import SQUARED, TAYLOR_LOGISTIC
from common.glm.ridge import fit_ridge
from tests.roles.gram_loop import Setting, drawn, run_gram, run_rowwise

RUNS = {"row-wise": run_rowwise, "gram": run_gram}


@pytest.fixture(params=RUNS.values(), ids=RUNS.keys())
def run(request):
    return request.param


def exact(setting: Setting) -> np.ndarray:
    X = np.column_stack([*setting.passive.values(), setting.active[:, :-1]])
    fit = fit_ridge if setting.loss is SQUARED else fit_taylor
    return fit(X, setting.labels, setting.l2, "free")


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def by_cg(setting: Setting, **changes) -> Setting:
    return replace(setting, solver="cg", rounds=60, **changes)


@pytest.mark.parametrize("widths", [(4, 3), (2, 5), (2, 3, 2)])
def test_the_weights_are_those_of_ridge_regression(run, widths):
    setting = by_cg(drawn(130, widths))
    found = run(setting)
    assert relative(found.weights, exact(setting)) < 1e-7
    if len(widths) == 2:
        assert len(found.losses) <= 1 + 2 * min(widths[0], widths[1] + 1) + 1


def test_the_weights_are_those_of_the_taylor_fit(run):
    setting = drawn(130, (3, 3))
    setting = by_cg(setting, loss=TAYLOR_LOGISTIC, labels=np.sign(setting.labels - 4))
    assert relative(run(setting).weights, exact(setting)) < 1e-7


def test_the_objective_that_the_scalars_give_is_the_objective(run):
    setting = by_cg(drawn(130, (4, 3)))
    found = run(setting)
    X = np.column_stack([*setting.passive.values(), setting.active])
    penalty = 0.5 * setting.l2 * np.sum(found.weights[:-1] ** 2)
    assert found.losses[-1] == pytest.approx(
        SQUARED.mean(X @ found.weights, setting.labels) + penalty, rel=1e-8
    )
    assert np.diff(found.losses).max() <= 1e-12


@pytest.mark.parametrize(("condition", "scale_bits"), [(1e2, 32), (1e4, 40), (1e6, 52)])
def test_ill_conditioned_columns_reach_a_millionth_with_enough_precision(run, condition, scale_bits):
    setting = by_cg(ill_conditioned(condition), l2=1e-9, scale_bits=scale_bits)
    assert relative(run(setting).weights, exact(setting)) < 1e-6


def ill_conditioned(condition: float) -> Setting:
    """Draw columns whose standardised correlation matrix has this condition number, across the parties."""
    rng = np.random.default_rng(11)
    q, _ = np.linalg.qr(rng.normal(size=(150, 8)))
    v, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    X = np.sqrt(150) * q * np.geomspace(1, 1 / np.sqrt(condition), 8) @ v
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    labels = X @ rng.normal(size=8) + 0.1 * rng.normal(size=150)
    return Setting({"party_a": X[:, :4]}, np.column_stack([X[:, 4:], np.ones(150)]), labels)
