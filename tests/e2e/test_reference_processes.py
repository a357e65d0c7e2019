"""The reference run of PROTOCOLS 1.1 by three real processes with a 2048-bit key, against the pooled run."""

from __future__ import annotations

import importlib.resources
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from common.data.split import split_rows
from tests.e2e.parties import VFL
from tests.e2e.test_three_processes import REPORT_KEYS

pytestmark = [pytest.mark.e2e, pytest.mark.fullsize]

ROUNDS, LEARNING_RATE, PENALTY = 10, 1e-2, 0.4


def published_listing(X, y):
    """The listing that the protocol's authors print, in numpy; losses in the sum form."""
    w, losses = np.zeros(X.shape[1]), []
    for _ in range(ROUNDS):
        losses.append(0.5 * np.sum((X @ w - y) ** 2) + 0.5 * PENALTY * np.sum(w**2))
        w = w - LEARNING_RATE * (X.T @ (X @ w - y) + PENALTY * w) / len(X)
    return np.array(losses), w


@pytest.fixture(scope="module")
def report(tmp_path_factory, small_keys):
    """Return the report of `vfl local` on the example as it stands, run without the switch for small keys."""
    out = tmp_path_factory.mktemp("out")
    config = Path(str(importlib.resources.files("configs"))) / "local_reference.yaml"
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("VFL_UNSAFE_TEST_KEYS")
        subprocess.run([VFL, "local", "-c", str(config), "--out", str(out)], check=True, timeout=250)
    return json.loads((out / "report.json").read_text())


@pytest.fixture(scope="module")
def expected():
    X, y = load_diabetes(return_X_y=True)
    # The example's files have the rows in scikit-learn's order; aligned rows are in that of the ids as text.
    table = Path(str(importlib.resources.files("configs"))) / "data" / "diabetes_b.csv"
    order = np.argsort([line.split(",")[0] for line in table.read_text().splitlines()[1:]])
    X, y = X[order], y[order]
    train, _ = split_rows(len(X), 0.3, 7)
    return published_listing(np.column_stack([X, np.ones(len(X))])[train], y[train])


def test_every_round_has_the_pooled_runs_loss(report, expected):
    losses = np.array(report["loss_history"]) * report["rows"]["train"]
    assert report["rows"]["train"] == 309
    assert losses[0] > 3e6
    assert np.abs(losses - expected[0]).max() < 1e-6


def test_the_weights_are_the_pooled_runs(report, expected):
    a, b = report["model"]["party_a"], report["model"]["party_b"]
    weights = np.array([*a["coefficients"], *b["coefficients"], b["intercept"]])
    assert np.abs(weights - expected[1]).max() < 1e-9


def test_the_report_has_the_keys_of_the_contract_and_every_part_of_the_model(report):
    assert set(report) >= REPORT_KEYS
    assert report["rounds"] == ROUNDS
    assert {"party_a", "party_b"} <= set(report["model"])
