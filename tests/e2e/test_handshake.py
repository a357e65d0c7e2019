"""Opening a job over real connections: version, role, membership and digest must fit, or words say no."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from common.errors import PeerRefused, UnknownJob
from common.rpc.channels import open_channel
from common.rpc.greeting import make_greeting
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb.coordinator_pb2_grpc import CoordinatorStub
from common.rpc.pb.passive_party_pb2 import DESCRIPTOR
from common.rpc.pb.passive_party_pb2_grpc import (
    PassivePartyServicer,
    PassivePartyStub,
    add_PassivePartyServicer_to_server,
)
from common.rpc.server import PartyServer
from common.rpc.wiretap import Wiretap
from tests.e2e.parties import WITHIN_S, ended, job

pytestmark = pytest.mark.e2e

STUBS = {"party_a": ("passive", PassivePartyStub), "coordinator": ("coordinator", CoordinatorStub)}


@asynccontextmanager
async def calling(federation, callee, own="party_b"):
    """Open a channel to a running party with another party's own certificate; yields the stub."""
    config = federation.config(own)
    address = federation[callee].address
    async with open_channel(callee, address, own, config.security, Wiretap()) as channel:
        yield STUBS[callee][1](channel)


def opening(callee, job_id="job-1", **changes):
    """Return what party_b would send to open the small job, with some fields replaced."""
    config = job()
    fields = {
        "turn": pb.Turn(job_id=job_id, job_digest=config.digest()),
        "greeting": make_greeting("party_b", "active"),
        "expected_role": STUBS[callee][0],
        "job_json": config.canonical_json(),
        "columns": 3,
    }
    return pb.OpenJobRequest(**(fields | changes))


def greeting(**changes):
    result = make_greeting("party_b", "active")
    for name, value in changes.items():
        setattr(result, name, value)
    return result


def wrong_openings():
    other = job(model={"l2": 3.0})
    return {
        "a newer protocol": (
            {"greeting": greeting(protocol_version=2, package_version="9.9")},
            ["protocol version 2", "'9.9'", "version 1"],
        ),
        "no version at all": ({"greeting": pb.Greeting(party="party_b")}, ["protocol version 0"]),
        "another name": ({"greeting": greeting(party="party_x")}, ["party_b", "party_x"]),
        "another role": ({"expected_role": "active"}, ["party"]),
        "another job's digest": (
            {"turn": pb.Turn(job_id="job-1", job_digest=other.digest())},
            ["does not have the digest"],
        ),
        "another job's text": ({"job_json": other.canonical_json()}, ["does not have the digest"]),
        "a job without us": (
            {
                "job_json": (without := job(passive=["party_z"], coordinator="c_z")).canonical_json(),
                "turn": pb.Turn(job_id="job-1", job_digest=without.digest()),
            },
            ["names it as no party"],
        ),
        "not a job": ({"job_json": b"\x00\xff" * 50}, ["not valid"]),
        "a path as its id": ({"turn": pb.Turn(job_id="../../x", job_digest=job().digest())}, ["job id"]),
    }


@pytest.mark.parametrize("callee", STUBS)
async def test_an_opening_that_does_not_fit_is_refused_in_plain_words(three, callee):
    async with calling(three, callee) as stub:
        for name, (changes, words) in wrong_openings().items():
            with pytest.raises(PeerRefused) as refused:
                await stub.OpenJob(opening(callee, **changes), timeout=WITHIN_S)
            assert [word for word in words if word not in str(refused.value)] == [], name
            assert callee in str(refused.value) + refused.value.where, name


async def test_a_job_is_not_opened_for_a_party_that_the_job_does_not_make_its_active_one(three):
    async with calling(three, "party_a", own="coordinator") as stub:
        request = opening("party_a", greeting=make_greeting("coordinator", "coordinator"))
        with pytest.raises(PeerRefused, match="coordinator may not open this job here; party_b may"):
            await stub.OpenJob(request, timeout=WITHIN_S)


async def test_a_second_job_under_a_running_ones_id_is_refused(three):
    other = job(model={"l2": 3.0})
    async with calling(three, "coordinator") as stub:
        await stub.OpenJob(opening("coordinator", "job-2"), timeout=WITHIN_S)
        turn = pb.Turn(job_id="job-2", job_digest=other.digest())
        with pytest.raises(PeerRefused, match="digest differs"):
            await stub.OpenJob(
                opening("coordinator", turn=turn, job_json=other.canonical_json()), timeout=WITHIN_S
            )
        with pytest.raises(PeerRefused, match="digest differs"):
            await stub.CloseJob(pb.CloseJobRequest(turn=turn, outcome=pb.CANCELLED), timeout=WITHIN_S)
        mine = pb.Turn(job_id="job-2", job_digest=job().digest())
        closing = pb.CloseJobRequest(turn=mine, outcome=pb.CANCELLED, reason="enough")
        first = await stub.CloseJob(closing, timeout=WITHIN_S)
        assert await stub.CloseJob(closing, timeout=WITHIN_S) == first
        with pytest.raises(PeerRefused, match="has ended here"):
            await stub.OpenJob(opening("coordinator", "job-2"), timeout=WITHIN_S)


async def test_a_turn_of_an_unknown_job_is_answered_as_such(three):
    async with calling(three, "party_a") as stub:
        turn = pb.Turn(job_id="never-opened", job_digest=bytes(32))
        with pytest.raises(UnknownJob, match="party_a has no open job of this id"):
            await stub.CloseJob(pb.CloseJobRequest(turn=turn, outcome=pb.CANCELLED), timeout=WITHIN_S)


async def test_asking_what_the_answer_would_be_opens_nothing(three):
    async with calling(three, "party_a") as stub:
        request = opening("party_a", "asked-only", preflight=True)
        reply = await stub.OpenJob(request, timeout=WITHIN_S)
        assert (reply.rows, reply.columns) == (64, 3)
        closing = pb.CloseJobRequest(turn=request.turn, outcome=pb.CANCELLED)
        with pytest.raises(UnknownJob):
            await stub.CloseJob(closing, timeout=WITHIN_S)


class _FromTheFuture(PassivePartyServicer):
    """A passive party that speaks the next version of the protocol."""

    async def OpenJob(self, request, context):  # noqa: N802 (gRPC's name)
        return pb.OpenJobReply(
            turn=request.turn,
            greeting=pb.Greeting(protocol_version=2, package_version="9.9", party="party_a"),
        )


async def test_the_active_party_refuses_a_peer_of_another_version(three):
    service = DESCRIPTOR.services_by_name["PassiveParty"]
    security = three.config("party_a").security
    server = PartyServer("party_a", "127.0.0.1:0", security, Wiretap(), ("party_b",))
    server.add(add_PassivePartyServicer_to_server, _FromTheFuture(), service)
    address = await server.start()
    peers = three["party_b"].settings["peers"]
    three["party_b"].restart(peers=peers | {"party_a": address})
    async with three.operator() as operator:
        record = await ended(operator, (await operator.submit(job())).job_id)
    await server.stop(0)
    assert record.error.error == "PeerRefused"
    assert "party_a speaks protocol version 2 (package '9.9'), this side version 1" in record.error.what
    assert address in record.error.where
    three["party_b"].restart(peers=peers)
    assert three.train(job()).returncode == 0
