"""A classifier's metrics, B alone by the exact logistic fit, and both losses."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from common.glm.labels import signed_labels
from party_b.reporting.classification import evaluate_classifier
from party_b.reporting.evaluation import Objective, ScoredRows
from party_b.reporting.wording import verdict

RNG = np.random.default_rng(9)
FEATURES = RNG.normal(size=(400, 3))
HIDDEN = RNG.normal(size=400)
LABELS = (FEATURES @ [1.0, -1.0, 0.5] + 2 * HIDDEN + RNG.logistic(size=400) > 0).astype(float)
TRAIN, TEST = np.arange(300), np.arange(300, 400)
SCORES = FEATURES @ [0.8, -0.8, 0.4] + 1.5 * HIDDEN


def evaluated(test=TEST, train=TRAIN):
    rows = ScoredRows(FEATURES, LABELS, SCORES, train, test)
    return evaluate_classifier(rows, signed_labels(LABELS, "y"), Objective(0.01, "free"))


def test_metrics_are_scikit_learns():
    found = evaluated()
    probability = 1 / (1 + np.exp(-SCORES[TEST]))
    assert found.test is not None
    assert found.test["auc"] == pytest.approx(roc_auc_score(LABELS[TEST], SCORES[TEST]))
    assert found.test["log_loss"] == pytest.approx(log_loss(LABELS[TEST], probability))
    assert found.test["accuracy"] == pytest.approx(np.mean((probability >= 0.5) == LABELS[TEST]))
    assert set(found.test) == set(found.train) == {"auc", "log_loss", "accuracy", "ks"}


def test_b_alone_is_the_exact_logistic_fit_with_the_same_objective():
    found = evaluated()
    alone = LogisticRegression(C=1 / (300 * 0.01), tol=1e-10, max_iter=10_000).fit(
        FEATURES[TRAIN], LABELS[TRAIN]
    )
    expected = log_loss(LABELS[TEST], alone.predict_proba(FEATURES[TEST])[:, 1])
    assert found.lift.local["log_loss"] == pytest.approx(expected, rel=1e-6)
    assert found.lift.gain == pytest.approx(found.lift.local["log_loss"] - found.lift.federated["log_loss"])
    assert "log_loss_gain" in found.lift.to_json()


def test_both_losses_are_reported_and_the_distance_said():
    found = evaluated()
    assert found.losses["train"]["logistic"] == pytest.approx(found.train["log_loss"])
    assert found.losses["test"]["taylor"] != found.losses["test"]["logistic"]
    assert any("Taylor" in note for note in found.notes)
    assert any("positive class" in note for note in found.notes)


def test_the_verdict_speaks_of_log_loss():
    found = verdict(evaluated().lift, "party_b", converged=True)
    assert "log loss" in found.text
    assert "squared" not in found.text


def test_without_test_rows_the_training_rows_are_compared():
    found = evaluated(test=np.arange(0), train=np.arange(400))
    assert found.test is None
    assert (found.lift.partition, set(found.losses)) == ("train", {"train"})
