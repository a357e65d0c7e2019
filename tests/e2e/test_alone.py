"""B alone as a job of its own: scikit-learn's fit of the same objective, a report, and scores of new rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.preprocessing import StandardScaler

from common.data.split import split_rows
from common.rpc.pb.active_party_pb2 import JOB_FINISHED
from common.runtime.cli.scoring import prediction_with
from common.runtime.config.alone import AloneJob
from tests.e2e.conftest import Start
from tests.e2e.parties import Federation, ended, party

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

ROWS, NEW, L2 = 150, 30, 0.02


class Customers:
    """B's table, with a number and a yes or no to predict."""

    def __init__(self, folder: Path) -> None:
        generator = np.random.default_rng(2)
        self.X = generator.normal(size=(ROWS + NEW, 3)) * [1, 10, 0.1] + 5
        noise = generator.normal(size=ROWS + NEW)
        self.y = self.X @ [2.0, 0.3, -4.0] + noise
        self.bought = self.y > np.median(self.y)
        self.files = {
            "old": self.write(folder / "old.csv", range(ROWS)),
            "new": self.write(folder / "new.csv", range(ROWS, ROWS + NEW)),
        }

    def write(self, path: Path, rows: range) -> Path:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "age", "income", "visits", "spent", "bought"])
            for row in rows:
                cells = map(repr, self.X[row].tolist())
                writer.writerow([f"{row:04d}", *cells, repr(float(self.y[row])), int(self.bought[row])])
        return path


@pytest.fixture(scope="module")
def customers(tmp_path_factory: pytest.TempPathFactory) -> Customers:
    return Customers(tmp_path_factory.mktemp("customers"))


@pytest.fixture(scope="module")
def b(start: Start, customers: Customers) -> Federation:
    """Return party_b, with nobody else in the world."""
    features = ["age", "income", "visits"]
    datasets = {
        name: {"source": {"csv": str(path)}, "features": features} for name, path in customers.files.items()
    }
    return start(party("party_b", "active", datasets=datasets))


def alone(label: str, **model: Any) -> AloneJob:
    values = {
        "job": f"alone-{label}",
        "algorithm": "local",
        "active": "party_b",
        "data": {"dataset": "old", "label": label, "split_seed": 5},
        "model": {"l2": L2, **model},
    }
    return AloneJob.model_validate_json(json.dumps(values))


async def scored(b: Federation, job_id: str) -> tuple[dict[str, Any], np.ndarray]:
    """Predict the new rows with a job's model; return the report and the file's numbers."""
    async with b.operator() as operator:
        job = prediction_with(await operator.show(job_id), "new")
        record = await ended(operator, (await operator.submit(job)).job_id)
    assert record.status == JOB_FINISHED, record.error
    folder = b.state("party_b", record.job_id)
    report = json.loads((folder / "report.json").read_text())
    return report, np.loadtxt(folder / "predictions.csv", delimiter=",", skiprows=1, ndmin=2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def split(customers: Customers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the training rows, the test rows, and all of them scaled as in training."""
    train, test = split_rows(ROWS, 0.3, 5)
    return train, test, StandardScaler().fit(customers.X[train]).transform(customers.X)


async def test_regression_is_scikit_learn_s_ridge(b: Federation, customers: Customers, split: Any) -> None:
    train, test, X = split
    job_id, report = await b.run(alone("spent"))
    ridge = Ridge(alpha=L2 * len(train)).fit(X[train], customers.y[train])
    model = b.model("party_b", job_id)
    assert np.allclose(model["coefficients"], ridge.coef_, rtol=0, atol=1e-9)
    assert report["metrics"]["test"]["r2"] == pytest.approx(
        r2_score(customers.y[test], ridge.predict(X[test]))
    )
    assert report["traffic"] == {"party_b": {"sent_bytes": 0, "received_bytes": 0}}
    assert (report["lift"], report["rounds"], report["parties"]) == (None, 0, {"party_b": "active"})
    assert "nobody else took part" in report["verdict"]
    page = (b.state("party_b", job_id) / "report.html").read_text()
    assert "How good the model is" in page
    assert "key holder" not in page
    prediction, rows = await scored(b, job_id)
    assert np.allclose(rows[:, 1], ridge.predict(X[ROWS:]), rtol=0, atol=1e-9)
    assert prediction["metrics"]["new"]["r2"] == pytest.approx(
        r2_score(customers.y[ROWS:], ridge.predict(X[ROWS:]))
    )


async def test_classification_is_scikit_learn_s_logistic_regression(
    b: Federation, customers: Customers, split: Any
) -> None:
    train, test, X = split
    job_id, report = await b.run(alone("bought", loss="logistic"))
    classifier = LogisticRegression(C=1 / (L2 * len(train)), tol=1e-12, max_iter=10_000)
    classifier.fit(X[train], customers.bought[train])
    assert np.allclose(b.model("party_b", job_id)["coefficients"], classifier.coef_[0], rtol=0, atol=1e-6)
    scores = classifier.decision_function(X)
    assert report["metrics"]["test"]["auc"] == pytest.approx(
        roc_auc_score(customers.bought[test], scores[test])
    )
    _, rows = await scored(b, job_id)
    assert np.allclose(rows[:, 1], scores[ROWS:], rtol=0, atol=1e-5)
    assert np.allclose(rows[:, 2], classifier.predict_proba(X[ROWS:])[:, 1], rtol=0, atol=1e-6)


async def test_the_command_trains_and_predicts_without_any_peer(b: Federation, tmp_path: Path) -> None:
    trained = b.train(alone("spent"))
    assert trained.returncode == 0, trained.stderr
    assert "federated" not in trained.stdout
    out = tmp_path / "one.csv"
    done = b.vfl(
        "predict", "alone-spent", "--dataset", "new", "--id", "0150", "--id", "9999", "--out", str(out)
    )
    assert done.returncode == 0, done.stderr
    header, first, second = out.read_text().splitlines()
    assert (header, first[:5], second) == ("id,score", "0150,", "9999,")
