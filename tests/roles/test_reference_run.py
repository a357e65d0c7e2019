"""The whole protocol as a loop without network, as in the paper's listing, against the pooled run."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from common.crypto.cipher import PaillierCipher, parse_ciphertexts
from common.crypto.entropy import SystemEntropy
from common.crypto.fixed_point import FixedPoint
from common.crypto.plan import gradient_packing
from common.crypto.private_key import PrivateKey
from common.data.split import BatchSchedule, split_rows
from common.glm.gradient_descent import GradientStep
from common.glm.losses import SQUARED
from common.glm.solvers import GradientDescent
from common.runtime.compute import InProcessExecutor
from coordinator.he_linear import Agreement, KeyHolder
from party_a.he_linear import PassiveRegression
from party_b.he_linear import ActiveRegression, LabelledRows

ROUNDS, LEARNING_RATE, PENALTY = 10, 1e-2, 0.4
X_ALL, Y_ALL = load_diabetes(return_X_y=True)
X_ALL = np.column_stack([X_ALL, np.ones(len(X_ALL))])
TRAIN, TEST = split_rows(len(X_ALL), 0.3, 7)


def pooled_run(X, y):
    """The listing that the protocol's authors print, word for word in numpy."""
    w, losses = np.zeros(X.shape[1]), []
    for _ in range(ROUNDS):
        losses.append(0.5 * np.sum((X @ w - y) ** 2) + 0.5 * PENALTY * np.sum(w**2))
        w = w - LEARNING_RATE * (X.T @ (X @ w - y) + PENALTY * w) / len(X)
    return np.array(losses), w


def three_roles(scale_bits, key_bits, blocks):
    """Make C and B, and a passive party for each block of columns; all have opened the job at C."""
    rows = len(TRAIN)
    names = [f"party_a{index}" for index in range(len(blocks))]
    slots = gradient_packing(key_bits, scale_bits).slots
    holder = KeyHolder(Agreement("party_b", tuple(names), ROUNDS, 1, gradient_slots=slots))
    holder.open("party_b", 5)
    for name, block in zip(names, blocks, strict=True):
        holder.open(name, len(block))
    holder.use_key(PrivateKey.generate(key_bits, SystemEntropy()))
    cipher = PaillierCipher(holder.key.public, InProcessExecutor(), SystemEntropy())
    schedule, scale = BatchSchedule(rows, None, 0), FixedPoint(scale_bits)

    def step(columns):
        penalties = np.full(len(columns), PENALTY / rows)
        return GradientDescent(GradientStep(tuple(map(str, columns)), LEARNING_RATE, penalties), SQUARED)

    passive = {
        name: PassiveRegression(X_ALL[TRAIN][:, block], schedule, step(block), cipher, scale, SystemEntropy())
        for name, block in zip(names, blocks, strict=True)
    }
    labelled = LabelledRows(X_ALL[TRAIN][:, 6:], Y_ALL[TRAIN])
    active = ActiveRegression(labelled, schedule, step(range(6, 11)), cipher, scale, SystemEntropy())
    return passive, active, holder


def run(passive, active, holder):
    """Rounds of PROTOCOLS 1.1 in two chunks each; what crosses between parties crosses as bytes."""
    key, losses = holder.key.public, []

    def arrive(sealed):
        return parse_ciphertexts(sealed.to_bytes(), key, len(sealed))

    for number in range(1, ROUNDS + 1):
        rows = active.begin(number)
        assert all(role.begin(number) == rows for role in passive.values())
        alone = len(passive) == 1
        shares = [arrive(role.loss_share_from_scores()) for role in passive.values() if alone]
        for chunk in (slice(0, 200), slice(200, rows)):
            d = active.add_residuals([arrive(role.encrypt_scores(chunk)) for role in passive.values()])
            for role in passive.values():
                role.absorb_residuals(arrive(d))
        for name, role in passive.items():
            role.apply(holder.decrypt_gradient(name, number, arrive(role.masked_gradient())))
        if not alone:
            shares = [arrive(role.loss_share_from_gradient()) for role in passive.values()]
        loss = holder.decrypt_loss("party_b", number, arrive(active.encrypted_loss(shares)))
        losses.append(active.decode_loss(loss))
        active.apply(holder.decrypt_gradient("party_b", number, arrive(active.masked_gradient())))
    weights = np.concatenate([*(role.solver.weights for role in passive.values()), active.solver.weights])
    return np.array(losses), weights


BLOCKS = {"one passive party": [range(6)], "two passive parties": [range(2), range(2, 6)]}


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS.keys())
def test_with_50_bits_every_round_equals_the_pooled_run(blocks):
    losses, weights = run(*three_roles(scale_bits=50, key_bits=512, blocks=[list(block) for block in blocks]))
    expected_losses, expected_weights = pooled_run(X_ALL[TRAIN], Y_ALL[TRAIN])
    assert expected_losses[0] > 3e6
    assert np.abs(losses - expected_losses).max() < 1e-6
    assert np.abs(weights - expected_weights).max() < 1e-9


def test_with_the_default_precision_the_run_stays_close_to_the_pooled_one():
    losses, weights = run(*three_roles(scale_bits=32, key_bits=512, blocks=[list(range(6))]))
    expected_losses, expected_weights = pooled_run(X_ALL[TRAIN], Y_ALL[TRAIN])
    assert np.abs(losses - expected_losses).max() < 1e-4
    assert np.abs(weights - expected_weights).max() < 1e-8


def test_the_test_error_after_ten_rounds_lies_where_the_published_one_does():
    _, weights = run(*three_roles(scale_bits=32, key_bits=512, blocks=[list(range(6))]))
    error = np.mean((X_ALL[TEST] @ weights - Y_ALL[TEST]) ** 2)
    assert 20_410 < error < 31_520
