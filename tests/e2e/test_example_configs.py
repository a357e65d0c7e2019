"""Every YAML file in configs/ runs as it stands, but for its key size and its ports."""

from __future__ import annotations

import importlib.resources
import json
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.e2e.parties import Federation, Party, vfl

pytestmark = pytest.mark.e2e

CONFIGS = Path(str(importlib.resources.files("configs")))
# With the number of test rows.
LOCAL = {
    "alone.yaml": 133,
    "breast.yaml": 138,
    "credit_default.yaml": 72,
    "demo.yaml": 133,
    "jpl.yaml": 540,
    "local_reference.yaml": 133,
    "minibatch.yaml": 133,
    "motor.yaml": 192,
    "splitnn.yaml": 480,
    "vfb2.yaml": 138,
    "vfb2_credit.yaml": 72,
}
WALKTHROUGH = ("coordinator.yaml", "party_a.yaml", "party_b.yaml", "job.yaml")  # in the order of starting
KEY_BITS = 512
CHECKS_WITHIN_S = 20.0
"""Much for a busy machine, and less than any time-out that a check could run into."""


def test_no_example_is_left_out():
    assert {path.name for path in CONFIGS.glob("*.yaml")} == {*LOCAL, *WALKTHROUGH}


@pytest.fixture
def folder(tmp_path):
    """Return a copy of the examples."""
    return shutil.copytree(CONFIGS, tmp_path / "configs")


@pytest.mark.parametrize("name", LOCAL)
def test_a_local_example_runs_all_parties_and_reports(folder, name):
    settings = yaml.safe_load((folder / name).read_text())
    if "crypto" in settings["job"]:
        settings["job"]["crypto"]["key_bits"] = KEY_BITS
    for one in settings["parties"]:
        one["policy"] = {**one.get("policy", {}), "min_key_bits": KEY_BITS}
        one["compute"] = {"workers": 0}
    if "credit" in name:
        write_credit(folder / "data")
    (folder / name).write_text(yaml.safe_dump(settings))
    dataset = settings["job"]["data"]["dataset"]
    result = vfl("local", "-c", str(folder / name), "--out", str(folder / "out"), "--predict", dataset)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    report = json.loads((folder / "out" / "report.json").read_text())
    assert set(report["model"]) == {
        one["party"] for one in settings["parties"] if one["role"] != "coordinator"
    }
    assert report["rows"]["test"] == LOCAL[name]
    assert len((folder / "out" / "predictions_test.csv").read_text().splitlines()) == LOCAL[name] + 1
    assert (folder / "out" / "report.html").stat().st_size > 10_000
    scores = (folder / "out" / f"scores_{dataset}.csv").read_text().splitlines()
    assert scores[0].startswith("id,score")
    assert len(scores) - 1 >= report["rows"]["train"] + report["rows"]["test"]


def test_what_a_local_run_has_kept_scores_new_rows_later(tmp_path):
    folder = tmp_path / "first"
    assert vfl("init", str(folder), "--algorithm", "local").returncode == 0
    local = str(folder / "local.yaml")
    trained = vfl("local", "-c", local, "--out", str(folder / "out"), "--predict", "diabetes")
    assert trained.returncode == 0, trained.stderr
    later = vfl(
        *("predict", "diabetes-alone", "--dataset", "diabetes", "-p", local),
        *("--out", str(folder / "later.csv")),
    )
    assert later.returncode == 0, later.stderr
    assert (folder / "later.csv").read_bytes() == (folder / "out" / "scores_diabetes.csv").read_bytes()


def write_credit(folder):
    """Write small files of the shape that scripts/make_example_data.py gives the published ones."""
    generator = np.random.default_rng(4)
    columns = {"a": [f"x{at}" for at in range(10)], "b": ["y", *(f"x{at}" for at in range(13))]}
    for party, names in columns.items():
        first = 0 if party == "a" else 30
        lines = [",".join(["id", *names])]
        for row in range(first, first + 270):
            cells = [f"{value:.6f}" for value in generator.normal(size=len(names))]
            cells[0] = str(row % 2) if party == "b" else cells[0]
            lines.append(",".join([f"{row:08d}", *cells]))
        (folder / f"credit_{party}.csv").write_text("\n".join(lines) + "\n")


def test_the_walkthrough_of_three_shells_works_as_written(folder):
    assert vfl("certs", "init", str(folder / "certs")).returncode == 0
    parties = {}
    for name in WALKTHROUGH[:3]:
        settings = yaml.safe_load((folder / name).read_text())
        addresses = {peer: parties[peer].address for peer, address in settings["peers"].items() if address}
        settings |= {
            "peers": settings["peers"] | addresses,
            "listen": "127.0.0.1:0",
            "compute": {"workers": 0},
        }
        if (
            settings["role"] != "active"
        ):  # For B's own jobs its policy does not matter, and `vfl check` wants a good one.
            settings["policy"]["min_key_bits"] = KEY_BITS
        parties[settings["party"]] = Party(settings, folder)
        parties[settings["party"]].start()
    try:
        train_by_the_files(Federation(folder, parties))
    finally:
        for one in parties.values():
            one.send(signal.SIGTERM)
        assert [one.ended() for one in parties.values()] == [0, 0, 0]


def train_by_the_files(federation):
    """Check and train with the example job; what `vfl` says on the way must be good news."""
    path = federation.folder / "job.yaml"
    path.write_text(path.read_text().replace("key_bits: 2048", f"key_bits: {KEY_BITS}"))
    started_s = time.monotonic()
    checked = vfl("check", "-c", str(federation.party_file), "-c", str(path))
    assert checked.returncode == 0, checked.stdout
    assert time.monotonic() - started_s < CHECKS_WITHIN_S
    assert "the same id rule on both sides" in checked.stdout
    out = federation.folder / "out"
    trained = federation.vfl("train", "-c", str(path), "--out", str(out))
    assert trained.returncode == 0, trained.stderr
    assert json.loads((out / "report.json").read_text())["metrics"]["test"]["r2"] > 0.3
    listed = federation.vfl("jobs")
    assert "diabetes-ridge" in listed.stdout
    assert "finished" in listed.stdout
