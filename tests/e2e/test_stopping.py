"""Stopping in good order: SIGTERM, cancel and Ctrl-C, and what a second service of the same party is told."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from common.rpc.pb.active_party_pb2 import JOB_CANCELLED, JOB_FAILED, RUNNING
from tests.e2e.parties import (
    ENDLESS,
    WITHIN_S,
    Party,
    assert_error,
    changed,
    ended,
    eventually,
    in_the_middle,
    job,
)

pytestmark = pytest.mark.e2e

STOPS_WITHIN_S = 2.0
DETACHED = 130


@pytest.mark.parametrize("name", ["coordinator", "party_a", "party_b"])
def test_a_service_without_jobs_stops_at_once(three, name):
    started_s = time.monotonic()
    three[name].send(signal.SIGTERM)
    assert three[name].ended() == 0
    assert time.monotonic() - started_s < STOPS_WITHIN_S
    assert f"{name} has stopped" in three[name].log
    three[name].start()


@pytest.mark.parametrize("leaving", ["party_a", "coordinator"])
async def test_a_peer_that_stops_during_a_job_says_so_and_ends_well(three, leaving):
    async with three.operator() as operator:
        job_id = await in_the_middle(operator, job(train=ENDLESS))
        three[leaving].send(signal.SIGTERM)
        record = await ended(operator, job_id)
    assert three[leaving].ended() == 0
    assert record.status == JOB_FAILED
    assert f"{leaving} is shutting down" in record.error.what
    other = {"party_a": "coordinator", "coordinator": "party_a"}[leaving]
    await eventually(lambda: three.outcome(other, job_id))
    assert f"{leaving} is shutting down" in three.outcome(other, job_id)["reason"]
    assert three.outcome(leaving, job_id)["outcome"] == "cancelled"
    three[leaving].start()
    assert await three.runs_the_next_job()


async def test_an_active_party_that_stops_cancels_its_jobs_everywhere(three):
    async with three.operator() as operator:
        job_id = await in_the_middle(operator, job(train=ENDLESS))
        three["party_b"].send(signal.SIGTERM)
        record = await ended(operator, job_id)
    assert three["party_b"].ended() == 0
    assert record.status == JOB_CANCELLED
    assert "party_b is shutting down" in record.error.what
    for name in ("party_a", "coordinator"):
        assert three.outcome(name, job_id)["outcome"] == "cancelled"
        assert "party_b is shutting down" in three.outcome(name, job_id)["reason"]
    three["party_b"].start()
    assert await three.runs_the_next_job()


async def test_a_cancelled_job_ends_at_every_party(three):
    async with three.operator() as operator:
        job_id = await in_the_middle(operator, job(train=ENDLESS))
        result = three.vfl("cancel", job_id)
        assert (result.returncode, result.stdout.strip()) == (0, f"{job_id}: cancelled")
        record = await ended(operator, job_id)
    assert record.status == JOB_CANCELLED
    for name in ("party_a", "coordinator"):
        assert three.outcome(name, job_id)["outcome"] == "cancelled"
        assert "party_b" in three.outcome(name, job_id)["reason"]
    shown = three.vfl("show", job_id)
    assert "cancelled" in shown.stdout
    assert three.vfl("cancel", job_id).returncode == 0
    assert_error(three.vfl("cancel", "no-such-job"), 1, ["party_b has no job 'no-such-job'"])


def in_training(three, config, *options):
    """Start `vfl train` and read its output until it trains; return the process."""
    process = three.following(config, *options)
    for line in process.stdout:
        if "training" in line:
            return process
    raise AssertionError(process.communicate()[1])


async def test_ctrl_c_detaches_from_a_job_that_goes_on(three):
    config = job(job="detached", train=ENDLESS)
    process = in_training(three, config)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=WITHIN_S)
    assert process.returncode == DETACHED
    assert "goes on" in stdout
    assert "Traceback" not in stderr
    async with three.operator() as operator:
        record = await operator.show("detached")
        assert record.status == RUNNING
        async for event in operator.watch(record.job_id):
            if event.round > record.rounds:
                break
        await operator.cancel(record.job_id)
    assert await three.runs_the_next_job()


async def test_ctrl_c_cancels_when_that_was_asked_for(three):
    config = job(job="interrupted", train=ENDLESS)
    process = in_training(three, config, "--cancel-on-interrupt")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 1
    assert "cancelled" in stderr
    assert "Traceback" not in stderr
    async with three.operator() as operator:
        record = await operator.show("interrupted")
    assert record.status == JOB_CANCELLED
    assert three.outcome("party_a", record.job_id)["outcome"] == "cancelled"


def test_a_second_service_on_the_same_state_is_refused(three):
    result = second_start(three, state=three["party_a"].settings["state"], listen="127.0.0.1:0")
    assert_error(result, 2, ["another service is working on this state directory", "state/party_a"])


def test_a_second_service_on_the_same_port_is_refused(three):
    address = three["party_a"].address
    result = second_start(three, state=str(three.folder / "elsewhere"), listen=address)
    assert_error(result, 2, [f"party_a cannot listen on {address}"])


def second_start(three, **changes):
    """Run party_a's service a second time with a changed file, which must end by itself."""
    folder = three.folder / "second"
    folder.mkdir(exist_ok=True)
    second = Party(changed(three["party_a"].settings, **changes), folder)
    result = subprocess.run(second.command(), capture_output=True, text=True, timeout=WITHIN_S)
    assert result.stdout == ""
    assert three["party_a"].runs
    return result


def test_a_missing_certificate_is_named_before_anything_starts(three):
    tls = three["party_a"].settings["tls"] | {"cert": str(three.folder / "nowhere.pem")}
    result = second_start(three, state=str(three.folder / "elsewhere"), listen="127.0.0.1:0", tls=tls)
    assert_error(result, 2, ["nowhere.pem"])


async def test_after_all_this_the_next_job_runs(three):
    assert await three.runs_the_next_job()
    assert three.all_run()
