"""A, B and C as processes on free ports with mutual TLS: what one run leaves, and whether it is right."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from tests.e2e.parties import Federation, job, party
from tests.e2e.tables import pooled, scores_of_test_rows, weights_of

pytestmark = pytest.mark.e2e

REPORT_KEYS = {
    *("job", "algorithm", "version", "parties", "rows", "rounds", "converged", "stopped_because"),
    *("loss_history", "metrics", "lift", "seconds", "traffic", "leaks", "model"),
}


@pytest.fixture(scope="module")
def config():
    """Return the job; made here because small keys are accepted while tests run only."""
    return job(job="whole-run", train={"max_rounds": 6})


@pytest.fixture(scope="module")
def federation(start, tables) -> Federation:
    """Return three parties of which two compute in worker processes."""
    pool = {"compute": {"workers": 1}}
    return start(
        party("coordinator", "coordinator"),
        party("party_a", "passive", {"patients": tables["party_a"]}, **pool),
        party("party_b", "active", {"patients": tables["party_b"]}, **pool),
    )


@pytest.fixture(scope="module")
def run(federation, config, tmp_path_factory):
    """Return the folder of one `vfl train --out`, its output, and its report."""
    out = tmp_path_factory.mktemp("out")
    result = federation.train(config, "--out", str(out))
    assert result.returncode == 0, result.stderr
    return out, result, json.loads((out / "report.json").read_text())


def test_training_is_followed_to_its_end_on_plain_lines(run):
    _, result, _ = run
    assert result.stderr.count("\n") <= 1  # the warning about small keys
    for word in ("opening", "training", "round 6/6", "evaluating", "party_a", "coordinator"):
        assert word in result.stdout


def test_the_report_has_the_keys_of_the_contract(run):
    _, _, report = run
    assert set(report) >= REPORT_KEYS
    assert report["rows"] == {"party_a": 64, "party_b": 64, "aligned": 64, "train": 48, "test": 16}
    assert (report["rounds"], report["converged"], report["stopped_because"]) == (6, False, "max_rounds")
    assert len(report["loss_history"]) == 6
    for rows in ("train", "test"):
        assert set(report["metrics"][rows]) == {"mse", "rmse", "mae", "r2"}
    assert set(report["lift"]["local"]["test"]) == set(report["lift"]["federated"]["test"])
    assert set(report["traffic"]) == {"party_a", "party_b", "coordinator"}
    assert set(report["model"]) == {"party_b"}
    assert report["seconds"]["total"] > 0
    assert all(isinstance(sentence, str) for sentence in report["leaks"])


def test_losses_and_weights_are_those_of_pooled_training(federation, config, run, tables):
    _, _, report = run
    expected = pooled(config, tables, 6)
    assert np.abs(np.array(report["loss_history"]) - expected.losses).max() < 1e-7
    assert np.abs(weights_of(config, models(federation, report)) - expected.weights).max() < 1e-8


def test_every_party_keeps_its_own_part_of_the_model_and_nothing_else(federation, run):
    _, _, report = run
    parts = models(federation, report)
    assert parts["party_a"]["features"] == ["age", "bmi", "bp"]
    assert parts["party_a"]["intercept"] is None
    assert parts["party_b"]["features"] == ["income", "visits"]
    assert report["model"]["party_b"]["coefficients"] == parts["party_b"]["coefficients"]
    assert files(federation, "party_a", report) == {"model.json", "status.json"}
    assert files(federation, "party_b", report) >= {
        "report.json",
        "report.html",
        "predictions_test.csv",
        "model.json",
    }


def test_the_key_holder_keeps_only_how_the_job_ended(federation, run):
    _, _, report = run
    assert files(federation, "coordinator", report) == {"status.json"}
    status = json.loads((federation.state("coordinator", job_id(report)) / "status.json").read_text())
    assert status["outcome"] == "finished"
    assert not [value for value in status.values() if isinstance(value, int) and value > 2**53]
    everything = [path for path in (federation.folder / "state" / "coordinator").rglob("*") if path.is_file()]
    assert {path.name for path in everything} == {"status.json", ".lock", "head", "000001.jsonl"}


def test_predictions_are_one_a_test_row_and_follow_from_the_parts_of_the_model(
    federation, config, run, tables
):
    out, _, report = run
    rows = list(csv.DictReader((out / "predictions_test.csv").open()))
    expected = scores_of_test_rows(config, tables, models(federation, report))
    assert [row["id"] for row in rows] == list(expected)
    given = [float(row["score"]) for row in rows]
    assert np.allclose(given, list(expected.values()), rtol=0, atol=1e-9)


def test_what_one_party_sent_the_others_received(run):
    traffic = run[2]["traffic"].values()
    sent, received = (sum(one[way] for one in traffic) for way in ("sent_bytes", "received_bytes"))
    assert sent > 10_000
    # Closing messages are counted by the side that sends them after it has reported its totals.
    assert abs(sent - received) < 0.1 * sent


def test_every_message_is_in_the_ledgers_of_both_sides(federation, run):
    name = job_id(run[2])
    assert federation.unlike(name) == []
    verified = federation.vfl("ledger", "verify")
    assert verified.returncode == 0, verified.stderr
    told = federation.vfl("ledger", "show", "--job", name).stdout
    residuals = next(line for line in told.splitlines() if line.endswith("encrypted residuals of the batch"))
    assert residuals.split()[:5] == ["to", "party_a", "6", str(6 * 48), str(6 * 48)]
    assert "encrypted, key of the coordinator" in residuals
    assert "a passive party's partial scores, in the clear" in told


def test_ledgers_that_differ_are_an_error_that_says_where(federation, run, tmp_path):
    name, handed = job_id(run[2]), tmp_path / "party_a.jsonl"
    entries = (federation.folder / "state" / "party_a" / "ledger" / "000001.jsonl").read_text().splitlines()
    handed.write_text("\n".join(line for line in entries if 'PartialScores"' not in line) + "\n")
    ended = federation.vfl("ledger", "reconcile", str(handed), "--job", name)
    assert ended.returncode == 1
    assert f"PartialScores, job {name}: received by party_b, not sent by party_a" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_state_can_be_read_by_its_owner_alone(federation, run):
    for name in federation.parties:
        for path in (federation.folder / "state" / name).glob("*/**/*"):
            assert path.stat().st_mode & 0o077 == 0, path


def models(federation, report):
    return {name: federation.model(name, job_id(report)) for name in ("party_a", "party_b")}


def job_id(report):
    return report["job_id"]


def files(federation, name, report):
    return {path.name for path in federation.state(name, job_id(report)).iterdir()}
