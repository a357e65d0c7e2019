"""Scores of new rows between real services: trained, restarted, and then asked for other rows than those."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from common.data.split import split_rows
from common.errors import JobError, PeerRefused, UnknownJob
from common.rpc.pb.active_party_pb2 import JOB_FAILED
from common.runtime.config.predict import PredictJob
from tests.e2e.conftest import Start
from tests.e2e.parties import Federation, assert_error, ended, eventually, job, party

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

TRAINED, NEW, COMMON = 120, 70, 55
A_COLUMNS, B_COLUMNS = ("age", "bmi"), ("income",)
CITIES = ("Basel", "Bern", "Genf")
PREDICTION = {"rows_per_day": 1000, "min_rows": 10, "online": True}


class People:
    """Everybody's columns side by side, and the files that the parties have of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        generator = np.random.default_rng(11)
        count = TRAINED + NEW
        self.ids = [f"{number:05d}" for number in generator.permutation(90_000)[:count]]
        self.numbers = {name: generator.normal(size=count) for name in (*A_COLUMNS, *B_COLUMNS)}
        self.cities = [str(one) for one in generator.choice(CITIES, count)]
        weights = np.array([1.5, -2.0, 0.7])
        self.y = np.column_stack([*self.numbers.values()]) @ weights + 3 + generator.normal(0, 0.1, count)
        self.new = list(range(TRAINED, count))

    def write(self, name: str, columns: dict[str, list[object]], rows: list[int]) -> Path:
        path = self.folder / f"{name}.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *columns])
            writer.writerows([self.ids[row], *(values[row] for values in columns.values())] for row in rows)
        return path

    def of_a(self) -> dict[str, list[object]]:
        return {
            **{name: list(map(repr, self.numbers[name].tolist())) for name in A_COLUMNS},
            "city": self.cities,
        }

    def of_b(self) -> dict[str, list[object]]:
        return {**{name: list(map(repr, self.numbers[name].tolist())) for name in B_COLUMNS}}

    def labels(self) -> dict[str, list[object]]:
        return {"y": list(map(repr, self.y.tolist()))}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> People:
    return People(tmp_path_factory.mktemp("people"))


def dataset(path: Path, *categorical: str) -> dict[str, object]:
    return {"source": {"csv": str(path)}, "types": dict.fromkeys(categorical, "categorical")}


def data_of_a(people: People) -> dict[str, object]:
    """Return A's data sets: the training rows, and the new ones in several states."""
    columns, seen = people.of_a(), people.new[:COMMON]
    backwards = seen[::-1]
    unseen = [("Zermatt" if row in seen[:4] else people.cities[row]) for row in range(len(people.ids))]
    without = {name: values for name, values in columns.items() if name != "bmi"}
    texts = {**columns, "bmi": ["high"] * len(people.ids)}
    further = {"shoe": ["42"] * len(people.ids), **dict(reversed(columns.items())), "city": unseen}
    files = {
        "people": people.write("a_people", columns, list(range(TRAINED))),
        "new": people.write("a_new", further, backwards),
        "holes": people.write("a_holes", {**without, "weight": columns["bmi"]}, seen),
        "texts": people.write("a_texts", texts, seen),
        "few": people.write("a_few", columns, seen[:12]),
    }
    return {name: dataset(path, "city") for name, path in files.items()}


def data_of_b(people: People) -> dict[str, object]:
    with_label = {**people.of_b(), **people.labels()}
    some_labels = {"y": ["" if row % 2 else repr(float(people.y[row])) for row in range(len(people.ids))]}
    files = {
        "people": people.write("b_people", with_label, list(range(TRAINED))[::-1]),
        "new": people.write("b_new", {**some_labels, **people.of_b()}, people.new),
        "holes": people.write("b_holes", people.of_b(), people.new),
        "texts": people.write("b_texts", people.of_b(), people.new),
        "few": people.write("b_few", people.of_b(), people.new[7:]),
    }
    return {name: dataset(path) for name, path in files.items()}


@pytest.fixture(scope="module")
def two(start: Start, people: People) -> Federation:
    return start(
        party("coordinator", "coordinator"),
        party("party_a", "passive", datasets=data_of_a(people), policy={"prediction": PREDICTION}),
        party("party_b", "active", datasets=data_of_b(people)),
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(two: Federation) -> str:
    """Return the job that trained a model; after it every service was stopped and started again."""
    config = job(
        job="people",
        data={"dataset": "people", "label": "y", "test_fraction": 0.25, "split_seed": 3},
        train={"learning_rate": "auto", "max_rounds": 60, "loss_every": 0},
        crypto={"key_bits": 256, "rounds": "gram"},
    )
    job_id, _ = await two.run(config)
    for name in ("coordinator", "party_a", "party_b"):
        two[name].restart()
    return job_id


def prediction(model: str, dataset: str, **changes: object) -> PredictJob:
    values = {
        "job": "score",
        "algorithm": "predict",
        "active": "party_b",
        "passive": ["party_a"],
        "model": model,
        "data": {"dataset": dataset},
    }
    return PredictJob.model_validate_json(json.dumps({**values, **changes}))


def by_models(two: Federation, people: People, model: str, unseen: list[int]) -> dict[str, float]:
    """Return id -> score of the new common rows, from both model.json alone."""
    a, b = two.model("party_a", model), two.model("party_b", model)
    scores = {}
    for row in people.new[:COMMON]:
        city = "Zermatt" if row in unseen else people.cities[row]
        cells = {**{name: people.numbers[name][row] for name in people.numbers}}
        score = b["intercept"]
        for part in (a, b):
            fitted = {column["name"]: column for column in part["preprocessing"]["columns"]}
            for feature, weight in zip(part["features"], part["coefficients"], strict=True):
                if "=" in feature:
                    score += weight * (feature == f"city={city}")
                else:
                    column = fitted[feature]
                    score += weight * (cells[feature] - column["shift"]) / column["scale"]
        scores[people.ids[row]] = float(score)
    return scores


async def test_new_rows_in_another_order_are_scored_and_counted(
    two: Federation, people: People, model: str, tmp_path: Path
) -> None:
    out = tmp_path / "scores.csv"
    done = two.vfl("predict", "people", "--dataset", "new", "--out", str(out))
    assert done.returncode == 0, done.stderr
    with out.open() as file:
        header, *rows = csv.reader(file)
    assert header == ["id", "score"]
    expected = by_models(two, people, model, people.new[:4])
    assert [row[0] for row in rows] == [people.ids[row] for row in people.new[:COMMON]]
    assert max(abs(float(score) - expected[one]) for one, score in rows) < 1e-9
    assert f"{NEW} rows here, {COMMON} of them also at party_a; {NEW - COMMON} have no score" in " ".join(
        done.stdout.split()
    )
    assert "R²" in done.stdout
    assert (
        "note: party_a: 1 column with categories that no training row had, in 4 of 55 common rows"
        in " ".join(done.stdout.split())
    )


async def test_the_report_says_what_was_scored_measured_and_learnt(two: Federation, model: str) -> None:
    job_id, report = await two.run(prediction(model, "new", job="reported"))
    assert report["rows"] == {"party_a": COMMON, "party_b": NEW, "aligned": COMMON, "scored": COMMON}
    assert report["model"]["job_id"] == model
    assert report["metrics"]["new"]["r2"] > 0.99
    assert any("party_a: 1 column with categories" in note and "4 of 55" in note for note in report["notes"])
    assert any("in how many rows party_a has categories" in text for text in report["leaks"])
    assert any(f"{COMMON} rows" in text and "in the clear" in text for text in report["leaks"])
    notes = two.outcome("party_a", job_id)["notes"]
    assert f"{COMMON:,} new rows, {COMMON} common, {COMMON} scored" in notes[0]
    assert any("'shoe'" in note for note in notes)
    assert any("4 rows of 55 with a category that no training row had" in note for note in notes)


async def test_scores_are_those_of_one_model_fitted_on_the_joined_rows(
    two: Federation, people: People, tmp_path: Path
) -> None:
    config = job(
        job="converged",
        data={"dataset": "people", "label": "y", "test_fraction": 0.25, "split_seed": 3},
        train={
            "solver": "cg",
            "learning_rate": "auto",
            "max_rounds": 40,
            "tolerance": 1e-22,
            "loss_every": 0,
        },
        crypto={"key_bits": 512, "precision_bits": 50, "rounds": "gram"},
    )
    job_id, _ = await two.run(config)
    scored, _ = await two.run(prediction(job_id, "new", job="score-converged"))
    order = np.argsort(np.array(people.ids[:TRAINED]))
    train = order[split_rows(TRAINED, 0.25, 3)[0]]
    numbers = np.column_stack([*people.numbers.values()])
    cities = np.array([[float(city == one) for one in CITIES] for city in people.cities])
    cities[people.new[:4]] = 0.0
    scaler = StandardScaler().fit(numbers[train])
    X = np.column_stack([scaler.transform(numbers), cities])
    pooled = Ridge(alpha=0.01 * len(train), tol=1e-14).fit(X[train], people.y[train])
    expected = dict(zip(people.ids, pooled.predict(X).tolist(), strict=True))
    with (two.state("party_b", scored) / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == COMMON
    assert max(abs(float(row["score"]) - expected[row["id"]]) for row in rows) < 1e-9


@pytest.mark.parametrize(("data", "words"), [("holes", ["bmi", "missing"]), ("texts", ["bmi", "text"])])
async def test_columns_that_do_not_fit_are_listed(
    two: Federation, model: str, data: str, words: list[str], tmp_path: Path
) -> None:
    done = two.vfl("predict", model, "--dataset", data, "--out", str(tmp_path / "none.csv"))
    assert_error(done, 1, ["party_a", "columns of the model's training", *words])
    assert not (tmp_path / "none.csv").exists()


async def failure(two: Federation, config: PredictJob) -> object:
    async with two.operator() as operator:
        record = await ended(operator, (await operator.submit(config)).job_id)
    assert record.status == JOB_FAILED
    return record.error


async def test_fewer_common_rows_than_the_policy_asks_for_are_not_scored(two: Federation, model: str) -> None:
    error = await failure(two, prediction(model, "few"))
    assert error.error == "PeerRefused"
    assert "5 common ids are fewer than the 10" in error.what


async def test_a_model_that_never_was_is_an_error_of_its_own(two: Federation) -> None:
    error = await failure(two, prediction("never-trained", "new"))
    assert (error.error, error.party) == ("UnknownJob", "party_b")
    with pytest.raises(UnknownJob):
        async with two.operator() as operator:
            await operator.score("never-trained", "new", ["00001"])


async def test_a_model_that_a_has_lost_or_changed_is_not_used(two: Federation, model: str) -> None:
    path = two.state("party_a", model) / "model.json"
    kept = path.read_text()
    try:
        path.write_text(kept.replace('"rounds": 60', '"rounds": 59'))
        changed_part = await failure(two, prediction(model, "new"))
        path.unlink()
        lost = await failure(two, prediction(model, "new"))
    finally:
        path.write_text(kept)
    assert changed_part.error == "RemoteProtocolError"
    assert "is not the one that training left there" in changed_part.what
    assert "has no model of job" in lost.what


async def test_single_rows_are_scored_from_a_standing_job(
    two: Federation, people: People, model: str
) -> None:
    expected = by_models(two, people, model, people.new[:4])
    known, unknown = people.ids[people.new[5]], people.ids[people.new[-1]]
    async with two.operator() as operator:
        first = await operator.score(model, "new", [known, unknown, f" {known} "])
        again = await operator.score("people", "new", [known])
        assert first.job_id == again.job_id
        assert [row.HasField("score") for row in first.rows] == [True, False, True]
        assert abs(first.rows[0].score - expected[known]) < 1e-9
        assert first.rows[2].score == again.rows[0].score == first.rows[0].score
        assert (await operator.show(first.job_id)).phase == "serving"
        await operator.cancel(first.job_id)
        await eventually(lambda: two.outcome("party_a", first.job_id) != {})
    assert "2 scored" not in two.outcome("party_a", first.job_id)["notes"][0]


async def test_the_daily_count_survives_a_restart_and_ends_scoring(
    two: Federation, people: People, model: str
) -> None:
    folder = two.folder / "state" / "party_a" / "scored_rows"
    used = json.loads((folder / "party_b.json").read_text())["rows"]
    two["party_a"].restart(policy={"prediction": {**PREDICTION, "rows_per_day": used + COMMON + 1}})
    job_id, _ = await two.run(prediction(model, "new", job="last"))
    two["party_a"].send(signal.SIGKILL)
    two["party_a"].ended()
    two["party_a"].start()
    error = await failure(two, prediction(model, "new", job="too-many"))
    assert error.error == "PeerRefused"
    assert f"{COMMON} rows are to be scored" in error.what
    assert "of which 1 are left" in error.what
    ids = [people.ids[row] for row in people.new[:2]]
    async with two.operator() as operator:
        assert (await operator.score(model, "new", ids[:1])).rows[0].HasField("score")
        assert (await operator.score(model, "new", ids[:1])).rows[0].HasField("score")
        with pytest.raises(PeerRefused, match="1 rows are to be scored"):
            await operator.score(model, "new", ids[1:])
    assert job_id


async def test_without_a_word_in_the_policy_nothing_is_scored(two: Federation, model: str) -> None:
    two["party_a"].restart(policy={"prediction": {**PREDICTION, "online": False}})
    with pytest.raises((PeerRefused, JobError), match="one by one"):
        async with two.operator() as operator:
            await operator.score(model, "new", ["00001"])
    two["party_a"].settings["policy"].pop("prediction")
    two["party_a"].restart()
    done = two.vfl("predict", model, "--dataset", "new", "--out", str(two.folder / "x.csv"))
    assert_error(done, 3, ["policy of party_a does not allow scoring new rows", "policy.prediction"])
