"""Credit data, 80 % of it at both parties: shuffled, ids with leading zeros, checked against scikit-learn.

The expectation is made from the files alone: ids are joined as text, and the same objective is fitted to the
joined rows. The Taylor loss is ⅛(z − 2y)² but for a constant, so its minimum is a ridge regression on 2y.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import StandardScaler

from common.data.split import split_rows
from tests.e2e.parties import vfl

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
SAMPLE = Path(__file__).parent / "published"
WHOLE = ROOT.parent / "shared" / "data" / "fate_default_credit"


def read(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    with path.open() as file:
        header, *rows = csv.reader(file)
    return header[1:], {row[0]: row[1:] for row in rows}


@dataclass(frozen=True)
class Pooled:
    """Both files joined by id as text, and the model fitted to the training rows."""

    ids: list[str]
    scores: np.ndarray
    labels: np.ndarray
    train: np.ndarray
    test: np.ndarray
    weights: np.ndarray

    @classmethod
    def fitted(cls, folder: Path, job: dict) -> Pooled:
        (_, a), (b_header, b) = (read(folder / f"credit_{party}.csv") for party in "ab")
        ids = sorted(a.keys() & b.keys())
        at = b_header.index("y")
        labels = np.array([int(b[one][at]) for one in ids])
        rows = [[*a[one], *(cell for place, cell in enumerate(b[one]) if place != at)] for one in ids]
        train, test = split_rows(len(ids), job["data"]["test_fraction"], job["data"]["split_seed"])
        cells = np.array(rows, dtype=float)
        X = StandardScaler().fit(cells[train]).transform(cells)
        ridge = Ridge(alpha=4 * len(train) * job["model"]["l2"]).fit(X[train], 2.0 * (2 * labels[train] - 1))
        return cls(ids, ridge.predict(X), labels, train, test, ridge.coef_)

    def metrics(self, rows: np.ndarray) -> dict[str, float]:
        y, z = self.labels[rows], self.scores[rows]
        return {
            "auc": roc_auc_score(y, z),
            "log_loss": log_loss(y, 1 / (1 + np.exp(-z))),
            "accuracy": float(np.mean((z > 0) == y)),
        }


def trained(source: Path, folder: Path, key_bits: int) -> tuple[dict, Pooled]:
    """Divide the published files between two parties, and run the example job on them."""
    files = [str(source / f"default_credit_hetero_{side}.csv.gz") for side in ("host", "guest")]
    script = str(ROOT / "scripts" / "make_example_data.py")
    made = [sys.executable, script, "credit", *files, "--to", str(folder / "data")]
    subprocess.run(made, check=True, capture_output=True)
    settings = yaml.safe_load((ROOT / "configs" / "credit_default.yaml").read_text())
    settings["job"]["crypto"]["key_bits"] = key_bits
    for one in settings["parties"]:
        one["policy"] = {**one.get("policy", {}), "min_key_bits": key_bits}
    (folder / "credit.yaml").write_text(yaml.safe_dump(settings))
    done = vfl("local", "-c", str(folder / "credit.yaml"), "--out", str(folder / "out"))
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "out" / "report.json").read_text())
    return report, Pooled.fitted(folder / "data", settings["job"])


def check(report: dict, pooled: Pooled, entities: int, folder: Path) -> None:
    common = entities - 2 * (entities // 10)
    held = entities - entities // 10
    counts = {name: report["rows"][name] for name in ("party_a", "party_b", "aligned", "train", "test")}
    assert counts == {
        "party_a": held,
        "party_b": held,
        "aligned": common,
        "train": len(pooled.train),
        "test": len(pooled.test),
    }
    assert len(pooled.ids) == common
    assert sum(one.startswith("0") for one in pooled.ids) == common
    weights = np.concatenate([report["model"][party]["coefficients"] for party in ("party_a", "party_b")])
    assert np.abs(weights - pooled.weights).max() < 1e-6 * np.abs(pooled.weights).max()
    for part, rows in (("train", pooled.train), ("test", pooled.test)):
        measured = {name: report["metrics"][part][name] for name in ("auc", "log_loss", "accuracy")}
        assert measured == pytest.approx(pooled.metrics(rows), abs=1e-6)
    with (folder / "out" / "predictions_test.csv").open() as file:
        _, *predicted = csv.reader(file)
    expected = {pooled.ids[row]: pooled.scores[row] for row in pooled.test}
    assert {row[0] for row in predicted} == expected.keys()


def test_a_sample_of_the_credit_data_gives_the_pooled_fit(tmp_path: Path) -> None:
    report, pooled = trained(SAMPLE, tmp_path, key_bits=512)
    check(report, pooled, 1_200, tmp_path)


@pytest.mark.fullsize
@pytest.mark.skipif(not WHOLE.is_dir(), reason="the published files are not there")
def test_all_of_the_credit_data_give_the_pooled_fit(tmp_path: Path) -> None:
    report, pooled = trained(WHOLE, tmp_path, key_bits=2048)
    check(report, pooled, 30_000, tmp_path)
