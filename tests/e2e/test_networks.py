"""Networks between real processes: trained with A, used with A, and used without A."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.runtime.config.networks import NetJob
from tests.e2e.clicks import Clicks, clicks_job, scores_in
from tests.e2e.conftest import Start
from tests.e2e.parties import Federation, assert_error

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

# The first job of a service imports torch, which takes long on a busy machine.
WITHIN_S = 200.0


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Clicks:
    return Clicks(tmp_path_factory.mktemp("clicks"))


@pytest.fixture(scope="module")
def two(start: Start, clicks: Clicks) -> Federation:
    """Return party_a and party_b, running."""
    return start(*clicks.parties())


def predicted(two: Federation, job: NetJob, out: Path) -> dict[str, float]:
    """Score the rows of `again` with the newest model of a job."""
    done = two.vfl("predict", job.job, "--dataset", "again", "--out", str(out))
    assert done.returncode == 0, done.stderr
    return scores_in(out)


async def test_a_split_network_predicts_with_both_halves_what_it_predicted_in_training(
    two: Federation, tmp_path: Path
) -> None:
    job = clicks_job(job="both")
    job_id, report = await two.run(job, WITHIN_S)
    assert report["metrics"]["test"]["auc"] > 0.55
    assert report["networks"]["methods"]["splitnn"]["common_test"] == report["metrics"]["test"]
    tested = scores_in(two.state("party_b", job_id) / "predictions_test.csv")
    again = predicted(two, job, tmp_path / "both.csv")
    assert len(again) == 500
    assert max(abs(again[one] - score) for one, score in tested.items()) < 1e-5
    # Each party keeps its own half, and the other's columns are nowhere in it.
    assert two.model("party_a", job_id)["features"] == ["shop", "spent"]
    assert two.model("party_b", job_id)["features"] == ["city", "device", "age"]
    assert (two.state("party_a", job_id) / "network.safetensors").exists()
    assert two.unlike(job_id) == []
    # One row would need A each time; a batch is what A's policy is about.
    asked = two.vfl("predict", job.job, "--dataset", "again", "--id", next(iter(again)))
    assert_error(asked, 3, ["a split network scores batches, not single rows", "--out FILE.csv"])


@pytest.mark.parametrize("algorithm", ["jpl", "fpd"])
async def test_a_student_scores_every_row_of_b_s_while_a_is_away(
    two: Federation, tmp_path: Path, algorithm: str
) -> None:
    job = clicks_job(job=f"alone-{algorithm}", algorithm=algorithm)
    job_id, report = await two.run(job, WITHIN_S)
    assert set(report["networks"]["methods"]) == {"local", "local ×2", "fpd", "splitnn"} | {algorithm}
    assert [one["method"] for one in report["networks"]["choices"]] == list(dict.fromkeys(["fpd", algorithm]))
    assert any(note.startswith(f"{algorithm} ") and "the split network" in note for note in report["notes"])
    tested = scores_in(two.state("party_b", job_id) / "predictions_test.csv")
    # A quarter of the common rows and of B's own ones.
    assert len(tested) == 125 + 50
    two["party_a"].kill()
    try:
        again = predicted(two, job, tmp_path / "alone.csv")
    finally:
        two["party_a"].start()
    assert len(again) == 700
    assert max(abs(again[one] - score) for one, score in tested.items()) < 1e-5


async def test_b_s_own_network_asks_nobody(two: Federation, tmp_path: Path) -> None:
    job = clicks_job(job="own", algorithm="local", passive=[])
    job_id, report = await two.run(job, WITHIN_S)
    assert report["traffic"] == {"party_b": {"sent_bytes": 0, "received_bytes": 0}}
    assert (report["lift"], report["parties"]) == (None, {"party_b": "active"})
    tested = scores_in(two.state("party_b", job_id) / "predictions_test.csv")
    again = predicted(two, job, tmp_path / "own.csv")
    assert max(abs(again[one] - score) for one, score in tested.items()) < 1e-5


async def test_nobody_is_asked_for_scores_of_a_model_that_is_b_s_alone(
    two: Federation, tmp_path: Path
) -> None:
    job = clicks_job(job="asked", algorithm="fpd")
    job_id, _ = await two.run(job, WITHIN_S)
    path = tmp_path / "predict.yaml"
    path.write_text(
        f"{{job: p, algorithm: predict, active: party_b, passive: [party_a], model: {job_id}, "
        "data: {dataset: again}}"
    )
    asked = two.vfl("train", "-c", str(path))
    assert_error(asked, 1, ["the prediction names party_a"])


async def test_the_same_job_gives_the_same_scores_again(two: Federation) -> None:
    job = clicks_job(job="twice")
    first, _ = await two.run(job, WITHIN_S)
    second, _ = await two.run(job, WITHIN_S)
    scores = [(two.state("party_b", one) / "predictions_test.csv").read_text() for one in (first, second)]
    assert scores[0] == scores[1]
