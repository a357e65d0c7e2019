"""Conjugate gradients in blocks, in the clear: where they end and how fast."""

from __future__ import annotations

import numpy as np
import pytest

from common.glm.conjugate import ConjugateScalars
from common.glm.logistic import fit_taylor
from common.glm.losses import SQUARED, TAYLOR_LOGISTIC
from common.glm.ridge import fit_ridge
from common.glm.solvers import BlockSystem, ConjugateBlock


def solve(blocks, y, l2, *, loss=SQUARED, tolerance=None, most=200):
    """Run the blocks as the parties do, the last one the active party's; return weights, rounds, losses."""
    penalties = [np.full(X.shape[1], l2) for X in blocks]
    penalties[-1][-1] = 0
    systems = [
        BlockSystem.of(tuple(map(str, range(X.shape[1]))), X, penalty, loss)
        for X, penalty in zip(blocks, penalties, strict=True)
    ]
    right = loss.label_factor * blocks[-1].T @ y / len(y)
    starts = [np.zeros(X.shape[1]) for X in blocks[:-1]] + [systems[-1].inverse() @ right]
    parts = [ConjugateBlock(*one) for one in zip(systems, starts, strict=True)]
    at_start = loss.mean(blocks[-1] @ starts[-1], y) + parts[-1].penalty()
    scalars, losses = ConjugateScalars(tolerance, at_start, float(right @ starts[-1])), []
    while not scalars.converged and len(losses) < most:
        points = [part.point() for part in parts]
        scores = sum(X @ point.block for X, point in zip(blocks, points, strict=True))
        d = loss.residuals(scores, points[0].label_weight * y)
        for X, part in zip(blocks, parts, strict=True):
            part.receive(X.T @ d, len(y))
        step = scalars.step(sum(part.curvature_part() for part in parts))
        turn = scalars.turn(sum(part.advance(step) for part in parts))
        losses.append(scalars.objective)
        for part in parts:
            part.turn(turn.mixing, turn.scale)
    return np.concatenate([part.weights for part in parts]), len(losses), losses


def drawn(n, widths, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, sum(widths))) @ rng.normal(size=(sum(widths), sum(widths)))
    blocks = np.split(X, np.cumsum(widths)[:-1], axis=1)
    blocks[-1] = np.column_stack([blocks[-1], np.ones(n)])
    return X, blocks, X @ rng.normal(size=sum(widths)) + 3 + rng.normal(size=n)


@pytest.mark.parametrize("widths", [(6, 4), (3, 8), (1, 1), (5, 5)])
def test_two_parties_end_within_twice_the_narrower_one_plus_one_steps(widths):
    X, blocks, y = drawn(200, widths)
    weights, rounds, _ = solve(blocks, y, 1e-3, tolerance=1e-8)
    narrower = min(widths[0], widths[1] + 1)
    assert rounds <= 1 + 2 * narrower + 1  # the first round computes the residual and takes no step
    assert weights == pytest.approx(fit_ridge(X, y, 1e-3, "free"), rel=1e-6, abs=1e-9)


def test_three_parties_reach_the_ridge_solution():
    X, blocks, y = drawn(300, (3, 4, 2))
    weights, _, losses = solve(blocks, y, 1e-3)
    assert weights == pytest.approx(fit_ridge(X, y, 1e-3, "free"), rel=1e-6, abs=1e-9)
    assert np.diff(losses).max() <= 1e-12


def test_the_objective_from_the_scalars_is_the_objective():
    _, blocks, y = drawn(200, (4, 3))
    weights, _, losses = solve(blocks, y, 1e-2)
    residual = np.column_stack([*blocks]) @ weights - y
    assert losses[-1] == pytest.approx(
        0.5 * np.mean(residual**2) + 0.5 * 1e-2 * np.sum(weights[:-1] ** 2), rel=1e-9
    )


def test_the_taylor_loss_ends_at_its_own_fit():
    X, blocks, y = drawn(200, (4, 3))
    y = np.sign(y - 3)
    weights, _, _ = solve(blocks, y, 1e-2, loss=TAYLOR_LOGISTIC)
    assert weights == pytest.approx(fit_taylor(X, y, 1e-2, "free"), rel=1e-6, abs=1e-9)


def test_a_column_that_stands_twice_in_one_block_does_not_stop_it():
    X, blocks, y = drawn(200, (3, 3))
    blocks[0] = np.column_stack([blocks[0], blocks[0][:, 0]])
    weights, _, _ = solve(blocks, y, 0.0)
    fitted = np.column_stack(blocks) @ weights
    expected = np.column_stack([X, np.ones(200)]) @ fit_ridge(X, y, 0.0, "free")
    assert fitted == pytest.approx(expected, abs=1e-6)
