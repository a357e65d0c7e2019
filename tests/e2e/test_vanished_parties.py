"""A party is killed or falls silent during a job: the others end it in time, say who is missing, go on."""

from __future__ import annotations

import asyncio
import json
import signal
import time

import pytest

from common.errors import Refused
from common.rpc.pb.active_party_pb2 import JOB_FAILED, JOB_FINISHED, QUEUED, RUNNING
from common.rpc.pb.passive_party_pb2 import DESCRIPTOR
from common.rpc.pb.passive_party_pb2_grpc import PassivePartyServicer, add_PassivePartyServicer_to_server
from common.rpc.server import PartyServer
from common.rpc.wiretap import Wiretap
from tests.e2e.conftest import three_parties
from tests.e2e.parties import ENDLESS, WITHIN_S, Federation, ended, eventually, in_the_middle, job, party

pytestmark = pytest.mark.e2e

PEER_S = 2.0
SLACK_S = 10.0
"""What a busy machine may need beside the deadline itself."""


@pytest.fixture(scope="module")
def federation(start, tables) -> Federation:
    """Return the usual three parties and a second passive one, none of which may be gone for long."""
    parties = [*three_parties(tables), party("party_a2", "passive", {"patients": tables["party_a2"]})]
    return start(*(one | {"deadlines": {"call_s": 3, "step_s": 60, "peer_s": PEER_S}} for one in parties))


@pytest.mark.parametrize("victim", ["party_a", "coordinator"])
async def test_a_killed_peer_is_named_and_the_others_stay_up(federation, victim):
    config = job(job=f"lost-{victim}".replace("_", "-"), train=ENDLESS)
    following = federation.following(config)
    async with federation.operator() as operator:
        job_id = await newest_in_training(operator, config.job)
        federation[victim].kill()
        record = await ended(operator, job_id, PEER_S + SLACK_S)
    _, stderr = following.communicate(timeout=SLACK_S)
    assert record.status == JOB_FAILED
    assert victim in record.error.what
    assert following.returncode == 3
    assert victim in stderr
    assert "Traceback" not in stderr
    other = {"party_a": "coordinator", "coordinator": "party_a"}[victim]
    await eventually(lambda: federation.outcome(other, job_id), PEER_S + SLACK_S)
    assert federation.outcome(other, job_id)["outcome"] == "failed"
    assert victim in federation.outcome(other, job_id)["reason"]
    assert [name for name, one in federation.parties.items() if not one.runs] == [victim]
    federation[victim].start()
    assert await federation.runs_the_next_job()


async def newest_in_training(operator, name):
    """Wait until a job of a name has done some rounds; return its id."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            known = [record for record in await operator.jobs() if record.name == name]
            assert not known or known[0].status in (QUEUED, RUNNING), known[0].error
            if known and known[0].rounds >= 3:
                return known[0].job_id
            await asyncio.sleep(0.02)


async def test_a_killed_active_party_is_missed_by_both_others_and_remembers_its_job(federation):
    config = job(job="lost-b", train=ENDLESS)
    following = federation.following(config)
    async with federation.operator() as operator:
        job_id = await newest_in_training(operator, config.job)
    federation["party_b"].kill()
    for name in ("party_a", "coordinator"):
        await eventually(lambda name=name: federation.outcome(name, job_id), PEER_S + SLACK_S)
        assert federation.outcome(name, job_id)["outcome"] == "failed"
        assert "party_b was gone for 2 s" in federation.outcome(name, job_id)["reason"]
    _, stderr = following.communicate(timeout=2 * SLACK_S)
    assert following.returncode == 3
    assert "party_b" in stderr
    assert federation["party_a"].runs
    assert federation["coordinator"].runs
    federation["party_b"].start()
    async with federation.operator() as operator:
        record = await ended(operator, job_id, SLACK_S)
    assert record.status == JOB_FAILED
    assert "party_b was gone for 2 s" in record.error.what
    assert await federation.runs_the_next_job()


async def test_a_peer_that_is_away_while_jobs_rest_is_not_missed(federation):
    federation["coordinator"].kill()
    federation["coordinator"].start()
    assert await federation.runs_the_next_job()


async def test_a_killed_party_leaves_other_jobs_of_the_others_no_trace(federation):
    async with federation.operator() as operator:
        jobs = [
            await in_the_middle(operator, job(job=f"many-{number}", train=ENDLESS)) for number in range(2)
        ]
        federation["party_a"].kill()
        records = [await ended(operator, job_id, PEER_S + SLACK_S) for job_id in jobs]
    assert {record.status for record in records} == {JOB_FAILED}
    for job_id in jobs:
        await eventually(lambda job_id=job_id: federation.outcome("coordinator", job_id), PEER_S + SLACK_S)
    federation["party_a"].start()
    assert await federation.runs_the_next_job()


class _Slow(PassivePartyServicer):
    """A passive party that takes its time to read its data, and then does not like the job."""

    def __init__(self):
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def OpenJob(self, request, context):  # noqa: N802 (gRPC's name)
        self.asked.set()
        await self.answers.wait()
        raise Refused("read it all, and would rather not")


async def test_a_party_that_opens_a_job_slowly_is_waited_for_by_all(federation):
    federation["party_a2"].kill()
    slow, own = _Slow(), federation.config("party_a2")
    server = PartyServer("party_a2", own.listen, own.security, Wiretap(), ("party_b",))
    server.add(add_PassivePartyServicer_to_server, slow, DESCRIPTOR.services_by_name["PassiveParty"])
    await server.start()
    async with federation.operator() as operator:
        job_id = (await operator.submit(job(passive=["party_a", "party_a2"]))).job_id
        await asyncio.wait_for(slow.asked.wait(), SLACK_S)
        with pytest.raises(TimeoutError):
            await ended(operator, job_id, 2 * PEER_S)
        assert not federation.outcome("party_a", job_id)
        assert not federation.outcome("coordinator", job_id)
        slow.answers.set()
        record = await ended(operator, job_id, SLACK_S)
    await server.stop(0)
    assert "would rather not" in record.error.what
    for name in ("party_a", "coordinator"):
        await eventually(lambda name=name: federation.outcome(name, job_id), SLACK_S)
        assert "would rather not" in federation.outcome(name, job_id)["reason"]
    federation["party_a2"].start()


async def test_a_party_lost_while_another_opens_the_job_is_noticed_at_once(federation):
    federation["party_a2"].kill()
    slow, own = _Slow(), federation.config("party_a2")
    server = PartyServer("party_a2", own.listen, own.security, Wiretap(), ("party_b",))
    server.add(add_PassivePartyServicer_to_server, slow, DESCRIPTOR.services_by_name["PassiveParty"])
    await server.start()
    async with federation.operator() as operator:
        job_id = (await operator.submit(job(passive=["party_a", "party_a2"]))).job_id
        await eventually(lambda: f"job {job_id} opened" in federation["coordinator"].log, SLACK_S)
        federation["party_a"].kill()
        record = await ended(operator, job_id, PEER_S + SLACK_S)
    await server.stop(0)
    assert "party_a was gone" in record.error.what
    for name in ("party_a", "party_a2"):
        federation[name].start()


async def test_a_coordinator_that_is_silent_while_a_job_is_opened_ends_it_long_before_a_steps_deadline(
    federation,
):
    federation["coordinator"].send(signal.SIGSTOP)
    async with federation.operator() as operator:
        job_id = (await operator.submit(job(job="unopened"))).job_id
        record = await ended(operator, job_id, PEER_S + 3 + SLACK_S)
    federation["coordinator"].send(signal.SIGCONT)
    assert record.status == JOB_FAILED
    assert "coordinator was gone for 2 s" in record.error.what
    await eventually(lambda: federation.outcome("party_a", job_id), PEER_S + SLACK_S)
    assert await federation.runs_the_next_job()


async def test_a_coordinator_that_cannot_close_a_trained_job_costs_nobody_the_model(federation):
    async with federation.operator() as operator:
        job_id = await in_the_middle(operator, job(job="unclosed", train={"max_rounds": 30}))
        status = federation.state("coordinator", job_id) / "status.json"
        status.mkdir()  # Its record of the job cannot be written.
        record = await ended(operator, job_id)
    status.rmdir()
    assert record.status == JOB_FINISHED, record.error
    report = json.loads((federation.state("party_b", job_id) / "report.json").read_text())
    assert "coordinator" not in report["traffic"]
    assert any("coordinator did not close the job" in note for note in report["notes"])
    assert federation.model("party_a", job_id)["rounds"] == report["rounds"]


@pytest.mark.fullsize
@pytest.mark.parametrize("victim", ["party_a", "coordinator"])
async def test_a_silent_peer_is_noticed_within_keepalive_and_comes_back_to_an_ended_job(federation, victim):
    async with federation.operator() as operator:
        job_id = await in_the_middle(operator, job(job="silent", train=ENDLESS))
        federation[victim].send(signal.SIGSTOP)
        stopped_s = time.monotonic()
        # Keepalive takes 10 + 10 s, closing the job with the silent party deadlines.call_s.
        record = await ended(operator, job_id, 20 + PEER_S + 3 + SLACK_S)
    assert time.monotonic() - stopped_s < 20 + PEER_S + 3 + SLACK_S
    assert record.status == JOB_FAILED
    assert victim in record.error.what + record.error.where
    federation[victim].send(signal.SIGCONT)
    assert await federation.runs_the_next_job()
    for name in ("party_a", "coordinator"):
        await eventually(lambda name=name: federation.outcome(name, job_id), PEER_S + SLACK_S)
