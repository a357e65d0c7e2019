"""Kill -9 of any party at any moment of a job: it goes on, and ends with the same weights, bit for bit."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from common.rpc.pb.active_party_pb2 import JOB_FINISHED, JobEvent
from common.runtime.config.job import JobConfig
from tests.e2e.conftest import three_parties
from tests.e2e.parties import WITHIN_S, Federation, changed, ended, eventually, job

pytestmark = pytest.mark.e2e

PARTIES = ("party_a", "party_b", "coordinator")
ROUNDS = 30
TRAIN = {"learning_rate": 0.2, "max_rounds": ROUNDS, "loss_every": 1}
ROWWISE, GRAM = {"rounds": "rowwise"}, {"rounds": "gram"}


@pytest.fixture(scope="module")
def federation(start, tables) -> Federation:
    """Return the usual three parties, which wait for each other longer than a start takes."""
    deadlines = {"deadlines": {"call_s": 20, "step_s": 60, "peer_s": 45}}
    return start(*(changed(one, **deadlines) for one in three_parties(tables)))


@pytest.fixture(scope="module")
def undisturbed(federation) -> Callable[[JobConfig], tuple[str, dict]]:
    """Return a function that runs a job without a loss, once, and gives its id and report."""
    known: dict[bytes, tuple[str, dict]] = {}

    def run(config: JobConfig) -> tuple[str, dict]:
        settings = config.model_copy(update={"job": "undisturbed"})
        if settings.digest() not in known:
            known[settings.digest()] = asyncio.run(federation.run(settings))
        return known[settings.digest()]

    return run


def in_phase(phase: str) -> Callable[[JobEvent], bool]:
    return lambda event: event.phase == phase


def after_round(number: int) -> Callable[[JobEvent], bool]:
    return lambda event: event.round >= number


async def at(federation: Federation, job_id: str, moment: Callable[[JobEvent], bool]) -> None:
    """Watch a job until a moment has come."""
    async with federation.operator() as operator, asyncio.timeout(WITHIN_S):
        async for event in operator.watch(job_id):
            if moment(event):
                return
    raise AssertionError("the job ended before its moment came")


async def submitted(federation: Federation, config: JobConfig) -> str:
    async with federation.operator() as operator:
        return (await operator.submit(config)).job_id


async def finished(federation: Federation, job_id: str) -> dict:
    """Watch a job to its good end; return its report."""
    async with federation.operator() as operator:
        record = await ended(operator, job_id)
    assert record.status == JOB_FINISHED, record.error
    return json.loads((federation.state("party_b", job_id) / "report.json").read_text())


def exactly(value: Any) -> Any:
    return value


def to_the_scale(value: Any) -> Any:
    """Shares of cross products are cut under fresh masks, so no two Gram runs round alike (ADR 0012)."""
    if isinstance(value, dict):
        return {key: to_the_scale(one) for key, one in value.items()}
    if isinstance(value, list | float):
        return pytest.approx(value, rel=1e-7, abs=1e-8) if numeric(value) else value
    return value


def numeric(value: Any) -> bool:
    return not isinstance(value, list) or all(isinstance(one, float) for one in value)


async def assert_same(
    federation: Federation,
    job_id: str,
    report: dict,
    expected: tuple[str, dict],
    same: Callable[[Any], Any] = exactly,
) -> None:
    """Check that a disturbed job left what the undisturbed one left, and nothing unfinished."""
    other_id, other = expected
    for name in ("party_a", "party_b"):
        ours, theirs = federation.model(name, job_id), federation.model(name, other_id)
        for key in ("coefficients", "intercept", "rounds", "preprocessing"):
            assert ours.get(key) == same(theirs.get(key)), (name, key)
    for key in ("loss_history", "metrics", "rounds", "converged", "stopped_because"):
        assert report[key] == same(other[key]), key
    parts = federation.model("party_b", job_id)["parts"]
    assert parts.keys() == {"party_a"}
    assert all(parts.values())
    for name in PARTIES:
        await eventually(lambda name=name: federation.outcome(name, job_id) != {})
        checkpoint = federation.state(name, job_id) / "checkpoint"
        await eventually(lambda checkpoint=checkpoint: not checkpoint.exists())


MOMENTS = {
    "opening": in_phase("opening"),
    "aligning": in_phase("aligning"),
    "preparing": in_phase("preparing"),
    "first-round": after_round(1),
    "training": after_round(ROUNDS // 2),
    "evaluating": in_phase("evaluating"),
    "closing": in_phase("closing"),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", PARTIES)
async def test_a_job_goes_on_after_any_party_was_killed_at_any_moment(
    federation, undisturbed, victim, moment
):
    config = job(job=f"lost-{moment}", train=TRAIN, crypto=ROWWISE)
    expected = await asyncio.to_thread(undisturbed, config)
    job_id = await submitted(federation, config)
    await at(federation, job_id, MOMENTS[moment])
    federation[victim].kill()
    federation[victim].start()
    report = await finished(federation, job_id)
    await assert_same(federation, job_id, report, expected)
    if moment in ("first-round", "training"):
        assert any("was interrupted" in note for note in report["notes"])
        assert sum("was interrupted" in note for note in report["notes"]) < 4


KINDS = {
    "mini-batches": ({"train": TRAIN | {"batch_size": 20}, "crypto": ROWWISE}, exactly),
    "conjugate-gradients": ({"train": {"solver": "cg", "max_rounds": 9}, "crypto": ROWWISE}, exactly),
    "gram": ({"train": TRAIN, "crypto": GRAM}, to_the_scale),
    "gram-conjugate-gradients": ({"train": {"solver": "cg", "max_rounds": 9}, "crypto": GRAM}, to_the_scale),
}


@pytest.mark.parametrize("victim", PARTIES)
@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_rounds_goes_on(federation, undisturbed, victim, kind):
    settings, same = KINDS[kind]
    config = job(job=kind, **settings)
    expected = await asyncio.to_thread(undisturbed, config)
    job_id = await submitted(federation, config)
    await at(federation, job_id, after_round(2))
    federation[victim].kill()
    federation[victim].start()
    await assert_same(federation, job_id, await finished(federation, job_id), expected, same)


async def test_vfl_train_finds_a_restarted_service_again_and_prints_the_results(federation, undisturbed):
    config = job(job="followed", train=TRAIN, crypto=ROWWISE)
    expected = await asyncio.to_thread(undisturbed, config)
    following = federation.following(config)
    async with federation.operator() as operator, asyncio.timeout(WITHIN_S):
        job_id = ""
        while not job_id:  # submitted by the other process
            job_id = next((one.job_id for one in await operator.jobs() if one.name == "followed"), "")
    await at(federation, job_id, after_round(ROUNDS // 3))
    federation["party_b"].kill()
    federation["party_b"].start()
    stdout, stderr = await asyncio.to_thread(following.communicate, timeout=2 * WITHIN_S)
    assert following.returncode == 0, stderr
    assert "error" not in stderr
    assert "the connection to party_b is lost" in stdout
    assert "party_b is back" in stdout
    await assert_same(federation, job_id, await finished(federation, job_id), expected)


async def test_a_job_that_a_has_closed_is_closed_by_b_after_its_restart(federation, undisturbed):
    config = job(job="half-closed", train=TRAIN, crypto=ROWWISE)
    expected = await asyncio.to_thread(undisturbed, config)
    job_id = await submitted(federation, config)
    await at(federation, job_id, in_phase("evaluating"))
    # The coordinator comes last, and B waits for its answer.
    federation["coordinator"].send(signal.SIGSTOP)
    await eventually(lambda: federation.outcome("party_a", job_id).get("outcome") == "finished")
    first = federation.model("party_a", job_id)
    federation["party_b"].kill()
    federation["party_a"].kill()
    federation["coordinator"].send(signal.SIGCONT)
    federation["party_a"].start()
    federation["party_b"].start()
    report = await finished(federation, job_id)
    assert federation.model("party_a", job_id) == first
    await assert_same(federation, job_id, report, expected)


async def test_all_parties_are_killed_at_once(federation, undisturbed):
    config = job(job="all-lost", train=TRAIN, crypto=ROWWISE)
    expected = await asyncio.to_thread(undisturbed, config)
    job_id = await submitted(federation, config)
    await at(federation, job_id, after_round(ROUNDS // 2))
    for name in PARTIES:
        federation[name].kill()
    for name in ("coordinator", "party_a", "party_b"):
        federation[name].start()
    await assert_same(federation, job_id, await finished(federation, job_id), expected)


async def test_one_loss_after_the_other(federation, undisturbed):
    config = job(job="often-lost", train=TRAIN | {"max_rounds": 60}, crypto=ROWWISE)
    expected = await asyncio.to_thread(undisturbed, config)
    job_id = await submitted(federation, config)
    for number, victim in ((5, "party_a"), (15, "coordinator"), (25, "party_b"), (35, "party_a")):
        await at(federation, job_id, after_round(number))
        federation[victim].kill()
        federation[victim].start()
    report = await finished(federation, job_id)
    assert sum("was interrupted" in note for note in report["notes"]) >= 4
    await assert_same(federation, job_id, report, expected)
