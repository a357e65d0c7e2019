"""VFB² between real processes: the pooled optimum, whatever the update, the sums, the mode and the number."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from tests.e2e.vfb2_parties import COLUMNS, four, job, parts, pooled, write_tables

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the CSV file of each of the four parties."""
    return write_tables(tmp_path_factory.mktemp("vfb2"))


@pytest.fixture(scope="module")
def federation(start, files):
    """Return four parties that all dial each other, two of them with labels."""
    return start(*four(files), circle=True)


async def optimum_reached(federation, files, config, most_above):
    job_id, report = await federation.run(config)
    best, weights, _ = pooled(config, files)
    assert abs(report["loss_history"][-1] / best - 1) < most_above
    assert report["vfb2"]["same_updates_everywhere"]
    assert len(set(report["vfb2"]["digest"].values())) == 1
    assert np.abs(parts(federation, config, job_id) - weights).max() < 30 * np.sqrt(most_above)
    return job_id, report


@pytest.mark.parametrize("update", ["svrg", "saga"])
@pytest.mark.parametrize("aggregation", ["trees", "pairwise"])
async def test_two_dominators_and_two_passive_parties_reach_the_pooled_optimum(
    federation, files, update, aggregation
):
    config = job(train={"update": update, "aggregation": aggregation, "epochs": 25})
    job_id, report = await optimum_reached(federation, files, config, 1e-6)
    # Whoever ends a stream does not wait for its last word.
    assert {one.message for one in federation.unlike(job_id)} <= {"vfl.v1.SumsPassed"}
    assert report["rounds"] == 25
    assert len(report["loss_history"]) == 25
    assert set(report["vfb2"]["staleness"]) == set(COLUMNS)
    assert all(report["vfb2"]["updates"][name] > 0 for name in config.dominators)


async def test_sgd_with_a_decaying_step_comes_near(federation, files):
    config = job(train={"update": "sgd", "decay": 0.5, "epochs": 15})
    await optimum_reached(federation, files, config, 2e-2)


@pytest.mark.parametrize("update", ["svrg", "saga"])
async def test_the_synchronous_twin_reaches_the_same_optimum_without_staleness(federation, files, update):
    config = job(train={"update": update, "mode": "sync", "tree_shape": "binomial", "epochs": 25})
    _, report = await optimum_reached(federation, files, config, 1e-6)
    # Between scores and their θ only the other dominator's update of the same step can be applied.
    for histogram in report["vfb2"]["staleness"].values():
        assert max(map(int, histogram)) <= 1


async def test_a_synchronous_epoch_may_have_some_rows_more_than_there_are(federation, files):
    """120 rows in steps of 2 × 7: nine steps, six rows more than there are; no epoch waits for ever."""
    config = job(train={"update": "saga", "mode": "sync", "batch_size": 7, "epochs": 6})
    _, report = await federation.run(config)
    assert report["rounds"] == 6
    assert report["vfb2"]["updates"] == {"party_b": 54, "party_b2": 54}
    seconds = report["vfb2"]["objective_seconds"]
    assert len(seconds) == 7
    assert seconds == sorted(seconds)
    assert seconds[0] == 0.0


async def test_threads_share_a_block_and_reach_the_same_optimum(federation, files):
    config = job(train={"update": "saga", "threads": 3, "epochs": 25})
    await optimum_reached(federation, files, config, 1e-6)


@pytest.mark.parametrize(("loss", "step"), [("squared", 0.05), ("robust", 0.05), ("logistic_nonconvex", 0.3)])
async def test_every_loss_reaches_a_pooled_stationary_point(federation, files, loss, step):
    config = job(train={"loss": loss, "learning_rate": step, "epochs": 40})
    _, report = await optimum_reached(federation, files, config, 1e-5)
    assert set(report["metrics"]["test"]) >= ({"auc"} if config.is_classifier else {"mse"})


async def test_two_parties_are_told_that_nothing_can_be_hidden(federation, files):
    config = job(active="party_b", passive=["party_a"], train={"epochs": 25})
    _, report = await optimum_reached(federation, files, config, 1e-6)
    leaks = "\n".join(report["leaks"])
    assert "with two parties no aggregation can hide that" in leaks
    assert "it gives every label away" in leaks


async def test_all_parties_may_be_active(federation, files):
    config = job(active=["party_b", "party_b2"], passive=[], train={"epochs": 25})
    await optimum_reached(federation, files, config, 1e-6)


async def test_training_ends_when_the_objective_has_settled(federation, files):
    config = job(train={"update": "saga", "epochs": 200, "tolerance": 1e-5})
    _, report = await federation.run(config)
    assert report["converged"]
    assert report["stopped_because"] == "tolerance"
    assert report["rounds"] < 200


async def test_metrics_are_those_of_the_saved_parts(federation, files, tmp_path):
    config = job(job="measured")
    result = federation.train(config, "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "updates/s" in result.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    page = (tmp_path / "report.html").read_text()
    assert "Every party has applied the same ones" in page
    assert "it gives every label away" in page
    rows = list(csv.DictReader((tmp_path / "predictions_test.csv").open()))
    assert len(rows) == report["rows"]["test"] == 40
    correct = [(float(row["score"]) > 0) == (float(row["y"]) > 0) for row in rows]
    assert report["metrics"]["test"]["accuracy"] == pytest.approx(np.mean(correct))
    assert report["lift"]["local"]["test"].keys() == report["lift"]["federated"]["test"].keys()
    # New rows are scored by all parts of the model, those of further active parties among them.
    for name in ("party_b2", "party_a", "party_a2"):
        federation[name].restart(policy={"prediction": {"rows_per_day": 1000, "min_rows": 20}})
    out = tmp_path / "scores.csv"
    scored = federation.vfl("predict", report["job_id"], "--dataset", "patients", "--out", str(out))
    assert scored.returncode == 0, scored.stderr
    again = {row["id"]: float(row["score"]) for row in csv.DictReader(out.open())}
    assert max(abs(again[row["id"]] - float(row["score"])) for row in rows) < 1e-9
