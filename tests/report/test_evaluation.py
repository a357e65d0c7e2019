"""Metrics after training, and B alone against the federation."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_squared_error, r2_score

from common.errors import LocalProtocolError, NumericError
from party_b.reporting.evaluation import Objective, ScoredRows, evaluate_regression, predictions_csv

RANDOM = np.random.default_rng(3)
OWN = RANDOM.normal(size=(90, 3))
OTHERS = RANDOM.normal(size=90)
LABELS = OWN @ [1.0, -1.0, 0.5] + 2 * OTHERS + 5 + 0.1 * RANDOM.normal(size=90)
TRAIN, TEST = np.arange(60), np.arange(60, 90)


def rows(scores: np.ndarray, train: np.ndarray = TRAIN, test: np.ndarray = TEST) -> ScoredRows:
    return ScoredRows(OWN, LABELS, scores, train, test)


GOOD = OWN @ [1.0, -1.0, 0.5] + 2 * OTHERS + 5


def test_b_alone_is_scikit_learns_ridge_on_bs_own_columns_and_training_rows() -> None:
    l2 = 0.01
    alone = Ridge(alpha=l2 * len(TRAIN)).fit(OWN[TRAIN], LABELS[TRAIN]).predict(OWN[TEST])
    lift = evaluate_regression(rows(GOOD), Objective(l2, "free")).lift
    assert lift.local["mse"] == pytest.approx(mean_squared_error(LABELS[TEST], alone))
    assert lift.local["r2"] == pytest.approx(r2_score(LABELS[TEST], alone))
    assert lift.federated["r2"] == pytest.approx(r2_score(LABELS[TEST], GOOD[TEST]))
    assert lift.gain == pytest.approx(lift.local["mse"] - lift.federated["mse"])
    assert lift.gain > lift.half_width > 0


def test_both_sides_of_the_lift_are_measured_on_the_test_rows() -> None:
    found = evaluate_regression(rows(GOOD), Objective(0.01, "free"))
    assert found.lift.to_json().keys() >= {"local", "federated"}
    assert set(found.lift.to_json()["local"]) == {"test"}  # type: ignore[call-overload]
    assert found.test == found.lift.federated
    assert found.metrics() == {"train": found.train, "test": found.test}


def test_without_test_rows_the_lift_speaks_of_training_rows() -> None:
    everything, nothing = np.arange(90), np.array([], dtype=np.int64)
    found = evaluate_regression(rows(GOOD, everything, nothing), Objective(0.01, "free"))
    assert found.metrics()["test"] is None
    assert (found.lift.partition, found.lift.rows) == ("train", 90)
    assert found.lift.federated == found.train


@pytest.mark.parametrize(("intercept", "expected"), [("free", True), ("none", False)])
def test_b_alone_has_an_intercept_only_if_the_job_has_one(intercept: str, expected: bool) -> None:
    found = evaluate_regression(rows(GOOD), Objective(0.01, intercept))  # type: ignore[arg-type]
    assert (found.lift.local["r2"] > 0) == expected


def test_a_score_that_is_not_finite_is_an_error() -> None:
    broken = GOOD.copy()
    broken[70] = np.inf
    with pytest.raises(NumericError):
        evaluate_regression(rows(broken), Objective(0.01, "free"))


def test_arrays_of_different_rows_are_a_bug() -> None:
    with pytest.raises(LocalProtocolError):
        rows(GOOD[:-1])


def test_predictions_hold_the_test_rows_exactly() -> None:
    ids = [f"{row:03d}" for row in range(89)] + ["a,b"]
    text = predictions_csv(ids, rows(GOOD)).decode()
    assert text.startswith("id,partition,y,score\n060,test,")
    found = list(csv.DictReader(io.StringIO(text)))
    assert [row["id"] for row in found] == [*ids[60:89], "a,b"]
    assert [float(row["y"]) for row in found] == LABELS[TEST].tolist()
    assert [float(row["score"]) for row in found] == GOOD[TEST].tolist()
