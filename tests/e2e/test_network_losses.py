"""Parties killed in a job with a network: it goes on from the last common epoch, or does not notice."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from common.rpc.pb.active_party_pb2 import JOB_FINISHED
from common.runtime.cli.operator import Operator
from common.runtime.config.networks import NetJob
from tests.e2e.clicks import Clicks, clicks_job
from tests.e2e.conftest import Start
from tests.e2e.parties import WITHIN_S, Federation, ended, eventually, in_the_middle

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

LONG = {"epochs": 8, "batch_size": 16}


@pytest.fixture(scope="module")
def two(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """Return party_a and party_b, running."""
    return start(*Clicks(tmp_path_factory.mktemp("clicks")).parties())


def job(name: str, algorithm: str = "splitnn", **changes: Any) -> NetJob:
    return clicks_job(job=name, algorithm=algorithm, train=LONG, **changes)


def left(two: Federation, job_id: str, name: str = "predictions_test.csv") -> bytes:
    return (two.state("party_b", job_id) / name).read_bytes()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def undisturbed(two: Federation) -> bytes:
    """Return the test scores of a run in which nothing happens."""
    return left(two, await quietly(two, job("undisturbed")))


async def quietly(two: Federation, config: NetJob) -> str:
    """Run a job to its end; return its id."""
    async with two.operator() as operator:
        job_id = (await operator.submit(config)).job_id
        await finished(operator, job_id)
    return job_id


async def finished(operator: Operator, job_id: str) -> None:
    record = await ended(operator, job_id, 2 * WITHIN_S)
    assert record.status == JOB_FINISHED, record.error


def _is_gone(path: Path) -> bool:
    return not path.exists()


async def entered(operator: Operator, config: NetJob, phase: str) -> str:
    """Submit a job and wait until it is in a phase; return its id."""
    submitted = await operator.submit(config)
    async with asyncio.timeout(2 * WITHIN_S):
        async for event in operator.watch(submitted.job_id):
            assert not event.HasField("record"), event.message
            if event.phase == phase:
                break
    return submitted.job_id


@pytest.mark.parametrize("name", ["party_a", "party_b"])
async def test_a_party_killed_between_epochs_costs_nothing_but_time(
    two: Federation, undisturbed: bytes, name: str
) -> None:
    async with two.operator() as operator:
        job_id = await in_the_middle(operator, job(f"killed-{name}"), 2)
    two[name].kill()
    two[name].start()
    async with two.operator() as operator:
        await finished(operator, job_id)
    assert left(two, job_id) == undisturbed
    for party in ("party_a", "party_b"):
        checkpoint = two.state(party, job_id) / "checkpoint"
        await eventually(partial(_is_gone, checkpoint))


async def test_a_is_not_missed_once_it_has_handed_over_what_it_knows(two: Federation) -> None:
    quiet_id = await quietly(two, job("quiet", "jpl"))
    async with two.operator() as operator:
        job_id = await entered(operator, job("without-a", "jpl"), "students")
        two["party_a"].kill()
        try:
            await finished(operator, job_id)
        finally:
            two["party_a"].start()
    assert left(two, job_id) == left(two, quiet_id)
    assert two.outcome("party_a", job_id)["outcome"] == "finished"
    assert two.model("party_a", job_id)["rounds"] >= 1


async def test_b_killed_in_stage_two_goes_on_without_a(two: Federation) -> None:
    quiet_id = await quietly(two, job("calm", "jpl"))
    async with two.operator() as operator:
        job_id = await entered(operator, job("b-alone", "jpl"), "students")
    two["party_a"].kill()
    two["party_b"].kill()
    two["party_b"].start()
    try:
        async with two.operator() as operator:
            await finished(operator, job_id)
    finally:
        two["party_a"].start()
    assert left(two, job_id) == left(two, quiet_id)


async def test_a_that_stays_away_ends_the_job_and_is_named(
    start: Start, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder: Path = tmp_path_factory.mktemp("clicks")
    two = start(*Clicks(folder).parties(deadlines={"peer_s": 8}))
    async with two.operator() as operator:
        job_id = await in_the_middle(operator, job("abandoned"), 2)
        two["party_a"].kill()
        record = await ended(operator, job_id)
    assert record.status != JOB_FINISHED
    assert "party_a" in record.error.what
