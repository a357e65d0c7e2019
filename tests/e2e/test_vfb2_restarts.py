"""VFB² loses parties by SIGKILL in the middle of an epoch, and goes on to the optimum all the same."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest

from common.rpc.pb.active_party_pb2 import JOB_FINISHED
from tests.e2e.parties import ended, eventually, in_the_middle
from tests.e2e.vfb2_parties import four, job, parts, pooled, write_tables

pytestmark = pytest.mark.e2e
WITHIN_S = 240.0
PEER_S = 120.0
"""On a busy machine one service after another takes long to start, and nobody shall give up meanwhile."""
# Small steps and many epochs: the middle of training is wherever a test looks.
LONG = {"epochs": 60, "learning_rate": 0.1, "batch_size": 2}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the CSV file of each of the four parties."""
    return write_tables(tmp_path_factory.mktemp("vfb2"))


@pytest.fixture(scope="module")
def federation(start, files):
    """Return four parties that all dial each other, two of them with labels."""
    return start(*four(files, deadlines={"peer_s": PEER_S}), circle=True)


async def finished_after(federation, files, config, disturb):
    """Run a job, do something to it in its middle, and return its report, the optimum reached."""
    async with federation.operator() as operator:
        job_id = await in_the_middle(operator, config, rounds=2)
    disturb()
    async with federation.operator() as operator:
        record = await ended(operator, job_id, WITHIN_S)
    assert record.status == JOB_FINISHED, record.error
    report = json.loads((federation.state(config.active, job_id) / "report.json").read_text())
    best, weights, _ = pooled(config, files)
    assert abs(report["loss_history"][-1] / best - 1) < 1e-6
    assert report["rounds"] == config.train.epochs
    assert report["vfb2"]["sessions"] > 1  # or nothing was disturbed
    assert len(set(report["vfb2"]["digest"].values())) == 1
    assert np.abs(parts(federation, config, job_id) - weights).max() < 3e-2
    return report


@pytest.mark.parametrize("update", ["svrg", "saga"])
@pytest.mark.parametrize("victim", ["party_a", "party_b2", "party_b"])
async def test_a_party_killed_in_the_middle_of_an_epoch_comes_back_and_training_ends_alike(
    federation, files, victim, update
):
    def disturb():
        federation[victim].kill()
        federation[victim].start()

    aggregation = "pairwise" if update == "saga" else "trees"
    config = job(
        job=f"lost-{victim.replace('_', '-')}", train={**LONG, "update": update, "aggregation": aggregation}
    )
    await finished_after(federation, files, config, disturb)


@pytest.mark.parametrize("victim", ["party_a", "party_b2"])
async def test_a_party_that_stands_still_for_ten_seconds_is_waited_for_and_nobody_fails(
    federation, files, victim
):
    config = job(job="paused", train={**LONG, "update": "saga"})
    async with federation.operator() as operator:
        job_id = await in_the_middle(operator, config, rounds=2)
        federation[victim].send(signal.SIGSTOP)
        with pytest.raises(TimeoutError):  # every sum needs everybody
            await ended(operator, job_id, 10)
        federation[victim].send(signal.SIGCONT)
        record = await ended(operator, job_id, WITHIN_S)
    assert record.status == JOB_FINISHED, record.error
    report = json.loads((federation.state("party_b", job_id) / "report.json").read_text())
    assert abs(report["loss_history"][-1] / pooled(config, files)[0] - 1) < 1e-6


@pytest.mark.parametrize("victim", ["party_a", "party_b"])
async def test_a_party_killed_while_the_job_is_closed_costs_nobody_the_model(federation, files, victim):
    config = job(job="unclosed", train={"epochs": 3})
    async with federation.operator() as operator:
        job_id = (await operator.submit(config)).job_id
        closing = federation.state("party_b", job_id) / "checkpoint" / "closing.json"
        await eventually(
            lambda: closing.exists() or federation.outcome("party_b", job_id).get("ended_unix_s"), WITHIN_S
        )
        federation[victim].kill()
        federation[victim].start()
    async with federation.operator() as operator:
        record = await ended(operator, job_id, WITHIN_S)
    assert record.status == JOB_FINISHED, record.error
    assert all(federation.model(name, job_id)["rounds"] == 3 for name in federation.parties)


async def test_everybody_killed_comes_back(federation, files):
    def disturb():
        for name in federation.parties:
            federation[name].kill()
        for name in federation.parties:
            federation[name].start()

    await finished_after(federation, files, job(job="all-lost", train={**LONG, "update": "svrg"}), disturb)


async def test_the_synchronous_twin_survives_a_loss(federation, files):
    def disturb():
        federation["party_b2"].kill()
        federation["party_b2"].start()

    config = job(job="sync-lost", train={**LONG, "mode": "sync", "update": "saga", "batch_size": 8})
    await finished_after(federation, files, config, disturb)
