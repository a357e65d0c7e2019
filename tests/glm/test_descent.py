"""What is said of a training that did not come down: true, and silent where nothing is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from common.glm.descent import lower_by, trouble
from common.glm.feature_rows import DenseRows, SparseRows
from common.glm.score_fit import fit_scores, score_objective
from common.glm.score_losses import loss_named, penalty_named

ROWS, OWN = 200, 3


def problem(loss, rows=DenseRows):
    rng = np.random.default_rng(4)
    matrix, penalties = rng.normal(size=(ROWS, 5)), np.full(5, 0.02)
    y = np.sign(matrix @ rng.normal(size=5) + rng.normal(size=ROWS))
    best = fit_scores(DenseRows(matrix), y, penalties, loss)
    lowest = score_objective(DenseRows(matrix), y, best, penalties, loss)

    def surely(weights):
        own = rows(matrix[:, :OWN])
        penalty = penalty_named(loss, penalties[:OWN])
        return lower_by(own, weights[:OWN], penalty, matrix @ weights, y, loss_named(loss))

    def above(weights):
        return score_objective(DenseRows(matrix), y, weights, penalties, loss) - lowest

    return best, surely, above


@pytest.mark.parametrize("rows", [DenseRows, SparseRows])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_the_objective_is_above_its_lowest_by_at_least_what_is_said(loss, rows):
    best, surely, above = problem(loss, rows)
    rng = np.random.default_rng(1)
    for size in (1e-2, 1e-1, 1.0):
        weights = best + size * rng.normal(size=5)
        assert 0.01 * above(weights) < surely(weights) <= above(weights) * (1 + 1e-9)
    assert surely(best) < 1e-12


def test_columns_without_a_gradient_cannot_lower_anything():
    nothing = DenseRows(np.zeros((4, 2)))
    penalty = penalty_named("logistic", np.zeros(2))
    labels = np.array([1.0, -1, 1, -1])
    assert lower_by(nothing, np.zeros(2), penalty, np.zeros(4), labels, loss_named("logistic")) == 0.0


@pytest.mark.parametrize(
    ("objectives", "lower", "said"),
    [
        ([0.7, 0.5, 0.4, 0.39, 0.389], 1e-3, ""),  # on its way, whatever is left
        ([0.7, 0.5, 0.4, 0.4, 0.4, 0.4], 1e-9, ""),  # arrived
        ([0.7], 0.1, ""),
        ([0.7, 0.5, 0.4, 0.41, 0.405, 0.4], 2e-3, "stood still for 3 epochs at 0.4, which is at least 0.002"),
        ([0.7, 0.5, 0.4, 0.45], 0.0, "rose again: 0.4 after epoch 2, 0.45 at the end"),
        ([0.7, 0.9, 3.0], 0.5, "did not fall: 0.7 at the start, 3 at the end"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_else(objectives, lower, said):
    found = trouble(objectives, lower)
    assert said in found
    assert bool(found) == bool(said)
