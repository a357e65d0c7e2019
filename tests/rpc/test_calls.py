"""Errors reach the one who waits for a call, with their type, on every kind of call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from common.errors import (
    ColonnadeError,
    ConfigError,
    DataError,
    JobCancelled,
    JobError,
    LocalProtocolError,
    NumericError,
    PeerFailed,
    PeerRefused,
    PeerUnreachable,
    Refused,
    RemoteProtocolError,
    UnknownJob,
)
from common.rpc.channels import HELD_OPEN, Deadline, open_channel
from common.rpc.pb import align_pb2 as align
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as job
from common.rpc.pb.coordinator_pb2_grpc import CoordinatorStub
from common.rpc.tls import Security
from common.rpc.wiretap import Wiretap
from tests.rpc.parties import CALL_S, TURN, PassivePartyForTests, certified, dialled, eventually, serving

OPEN = job.OpenJobRequest(turn=TURN)


@dataclass(frozen=True, slots=True)
class Peers:
    stub: Any
    servicer: PassivePartyForTests
    address: str


@pytest.fixture
async def peers(tmp_path: Path) -> AsyncIterator[Peers]:
    at_a, at_b = certified(tmp_path, "party_a", "party_b")
    servicer = PassivePartyForTests()
    async with serving(at_a, servicer) as address, dialled(address, at_b) as stub:
        yield Peers(stub, servicer, address)


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (Refused, PeerRefused),
        (UnknownJob, UnknownJob),
        (JobError, JobError),
        (JobCancelled, JobCancelled),
        (DataError, PeerFailed),
        (NumericError, PeerFailed),
        (ConfigError, PeerFailed),
        (PeerUnreachable, PeerUnreachable),
        (PeerRefused, PeerRefused),
        (PeerFailed, PeerFailed),
        (RemoteProtocolError, PeerRefused),
        (LocalProtocolError, PeerFailed),
    ],
)
async def test_an_error_arrives_as_what_it_is_for_the_caller(
    peers: Peers, raised: type[ColonnadeError], seen: type[ColonnadeError]
) -> None:
    peers.servicer.failure = raised("the ütmost row 7 is bad", where="a.csv:7", advice="mend it")
    with pytest.raises(ColonnadeError) as caught:
        await peers.stub.OpenJob(OPEN, timeout=CALL_S)
    assert type(caught.value) is seen
    assert "party_a" in caught.value.what
    assert "the ütmost row 7 is bad" in caught.value.what
    assert caught.value.where == f"party_a at {peers.address}, a.csv:7"
    assert caught.value.advice == "mend it"


async def test_an_error_after_some_responses_ends_the_stream_with_its_type(peers: Peers) -> None:
    peers.servicer.failure = NumericError("the loss is not finite")
    responses = aiter(peers.stub.EncryptScores(he.ScoresRequest(turn=TURN), timeout=CALL_S))
    assert [len((await anext(responses)).ciphertexts) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(PeerFailed, match="party_a reports: the loss is not finite"):
        await anext(responses)


async def test_what_ends_a_stream_arrives_also_while_more_is_being_sent(peers: Peers) -> None:
    """gRPC by itself loses it in every fifth call, in two of three where answers are streamed as well."""
    peers.servicer.failure = UnknownJob("it has ended")
    residuals = [he.EncryptedResiduals(turn=TURN, ciphertexts=b"c" * 1000)] * 30
    ids = [align.BlindedIds(turn=TURN, points=b"p" * 1000)] * 30
    for _ in range(12):
        with pytest.raises(UnknownJob, match="it has ended"):
            await peers.stub.ApplyResiduals(residuals, timeout=CALL_S)
        with pytest.raises(UnknownJob, match="it has ended"):
            await anext(aiter(peers.stub.BlindIds(ids, timeout=CALL_S)))


async def test_an_unforeseen_error_keeps_its_text_at_home(
    peers: Peers, caplog: pytest.LogCaptureFixture
) -> None:
    peers.servicer.failure = ValueError("label 1 of Alice")
    with pytest.raises(PeerFailed, match="unforeseen ValueError in OpenJob") as caught:
        await peers.stub.OpenJob(OPEN, timeout=CALL_S)
    assert "Alice" not in caught.value.block()
    assert "Alice" not in str(caught.value.__cause__)
    assert "Alice" in caplog.text


async def test_a_very_long_error_still_arrives(peers: Peers) -> None:
    peers.servicer.failure = Refused("ü" * 100_000, where="w" * 100_000, advice="a" * 100_000)
    with pytest.raises(PeerRefused, match="üüü"):
        await peers.stub.OpenJob(OPEN, timeout=CALL_S)


async def test_a_missed_deadline_names_the_timer_and_its_length_and_stops_the_servicer(peers: Peers) -> None:
    deadline = Deadline(1.5, "deadlines.step_s")
    missed = r"party_a did not answer Prepare within 1\.5 s \(deadlines\.step_s\)"
    with pytest.raises(PeerUnreachable, match=missed):
        await peers.stub.Prepare(he.PrepareRequest(turn=TURN), timeout=deadline)
    await eventually(peers.servicer.cancelled.is_set)


async def test_cancelling_the_caller_cancels_the_servicer(peers: Peers) -> None:
    async def prepare() -> None:
        await peers.stub.Prepare(he.PrepareRequest(turn=TURN), timeout=CALL_S)

    task = asyncio.create_task(prepare())
    await peers.servicer.prepares.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(peers.servicer.cancelled.is_set)


async def test_a_call_without_deadline_is_a_bug(peers: Peers) -> None:
    with pytest.raises(LocalProtocolError, match="OpenJob was called without a deadline"):
        peers.stub.OpenJob(OPEN)


async def test_an_error_in_our_own_feed_reaches_the_caller_instead_of_a_cancellation(peers: Peers) -> None:
    async def feed() -> AsyncIterator[he.EncryptedResiduals]:
        yield he.EncryptedResiduals(turn=TURN, ciphertexts=b"c")
        raise NumericError("x3 left its range")

    with pytest.raises(NumericError, match="x3 left its range"):
        await peers.stub.ApplyResiduals(feed(), timeout=CALL_S)
    with pytest.raises(NumericError, match="x3 left its range"):
        async with asyncio.timeout(CALL_S):
            await peers.stub.ApplyResiduals(feed(), timeout=CALL_S)


async def test_leaving_a_stream_early_ends_the_call(peers: Peers) -> None:
    call = peers.stub.EncryptScores(he.ScoresRequest(turn=TURN), timeout=HELD_OPEN)
    responses = aiter(call)
    await anext(responses)
    await responses.aclose()
    await eventually(call.done)


async def test_requests_may_come_from_a_plain_list(peers: Peers) -> None:
    chunks = [he.EncryptedResiduals(turn=TURN, ciphertexts=b"c" * 7)] * 3
    assert (await peers.stub.ApplyResiduals(chunks, timeout=CALL_S)).turn.round == 21


async def test_a_service_that_the_peer_does_not_offer_is_named(tmp_path: Path) -> None:
    at_a, at_b = certified(tmp_path, "party_a", "party_b")
    async with (
        serving(at_a) as address,
        open_channel("party_a", address, "party_b", at_b, Wiretap()) as channel,
    ):
        with pytest.raises(PeerRefused, match="party_a does not offer DecryptLoss"):
            await CoordinatorStub(channel).DecryptLoss(he.EncryptedLoss(turn=TURN), timeout=CALL_S)


async def test_nobody_there_is_unreachable_with_the_reason(tmp_path: Path) -> None:
    _, at_b = certified(tmp_path, "party_a", "party_b")
    async with dialled("127.0.0.1:1", at_b) as stub:
        with pytest.raises(PeerUnreachable, match="party_a cannot be reached: nothing listens") as caught:
            await stub.OpenJob(OPEN, timeout=CALL_S)
    assert "127.0.0.1:1" in caught.value.where
    async with dialled("no-such-host.invalid:7001", at_b) as stub:
        with pytest.raises(PeerUnreachable, match="host name cannot be resolved"):
            await stub.OpenJob(OPEN, timeout=CALL_S)


async def test_refusals_are_logged_with_the_caller(peers: Peers, caplog: pytest.LogCaptureFixture) -> None:
    peers.servicer.failure = Refused("2048 bits at least")
    with pytest.raises(PeerRefused):
        await peers.stub.OpenJob(OPEN, timeout=CALL_S)
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.name == "vfl.rpc"
    assert "party_b" in record.getMessage()
    assert "2048 bits at least" in record.getMessage()


async def test_without_tls_everything_else_is_the_same() -> None:
    servicer = PassivePartyForTests(failure=Refused("no"))
    async with serving(Security(None), servicer) as address, dialled(address, Security(None)) as stub:
        with pytest.raises(PeerRefused, match="party_a refused: no"):
            await stub.OpenJob(OPEN, timeout=CALL_S)
