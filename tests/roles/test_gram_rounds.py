"""Gram rounds as a loop without network: the same iterates as row-wise rounds, whatever the loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.glm.losses import SQUARED, TAYLOR_LOGISTIC
from common.glm.ridge import pooled_gradient_descent
from tests.roles.gram_loop import drawn, run_gram, run_rowwise

WIDTHS = {"one passive party": (4, 3), "three passive parties": (2, 3, 1, 3)}


@pytest.fixture(params=WIDTHS.values(), ids=WIDTHS.keys())
def setting(request):
    return drawn(130, request.param)


@pytest.mark.parametrize("loss", [SQUARED, TAYLOR_LOGISTIC], ids=["squared", "logistic"])
def test_every_round_equals_the_row_wise_one(setting, loss):
    labels = setting.labels if loss is SQUARED else np.sign(setting.labels - 4)
    setting = replace(setting, loss=loss, labels=labels)
    gram, rowwise = run_gram(setting), run_rowwise(setting)
    assert np.abs(gram.weights - rowwise.weights).max() < 1e-8
    assert np.abs(np.array(gram.losses) - rowwise.losses).max() < 1e-7


def test_every_round_equals_the_pooled_run(setting):
    setting = replace(setting, scale_bits=44)
    run = run_gram(setting)
    X = np.column_stack([*setting.passive.values(), setting.active])
    penalty = np.append(np.full(X.shape[1] - 1, setting.l2), 0.0)
    pooled = pooled_gradient_descent(X, setting.labels, penalty, setting.rate, setting.rounds)
    assert np.abs(run.weights - pooled.weights).max() < 1e-11
    assert np.abs(np.array(run.losses) - pooled.losses).max() < 1e-10
