"""Who is present in a job, who has vanished, and how soon that is known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from common.errors import JobError, PeerUnreachable, UnknownJob
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.presence import Attendees, attend
from common.rpc.tls import Security
from tests.rpc.parties import (
    CALL_S,
    QUICK,
    TURN,
    Network,
    PassivePartyForTests,
    certified,
    dialled,
    eventually,
    process_serving,
    serving,
)

PEER_S = 0.5
LONG_S = 10.0


class Job:
    """A job at party_a, in which party_b must be present."""

    def __init__(self, peer_s: float) -> None:
        self.vanished: list[str] = []
        self.attendees = Attendees(peer_s, self.vanished.append, every_s=0.1)

    async def is_attended(self) -> None:
        await eventually(lambda: self.attendees.present == {"party_b"})

    async def is_left(self) -> None:
        await eventually(lambda: not self.attendees.present)


@dataclass(frozen=True, slots=True)
class Peers:
    """party_a, serving behind a network that can break, and party_b's certificates."""

    network: Network
    servicer: PassivePartyForTests
    at_b: Security

    async def attend(self, peer_s: float = PEER_S) -> None:
        async with dialled(self.network.address, self.at_b) as stub:
            await attend(stub.Attend, TURN, peer="party_a", address=self.network.address, peer_s=peer_s)


@pytest.fixture
async def peers(tmp_path: Path) -> AsyncIterator[Peers]:
    at_a, at_b = certified(tmp_path, "party_a", "party_b")
    servicer = PassivePartyForTests()
    async with serving(at_a, servicer) as address, Network(address) as network:
        yield Peers(network, servicer, at_b)


def opened(peers: Peers, peer_s: float = PEER_S) -> Job:
    job = Job(peer_s)
    peers.servicer.attendees = job.attendees
    return job


async def test_a_party_is_present_while_its_stream_is_open(peers: Peers) -> None:
    job = opened(peers)
    task = asyncio.create_task(peers.attend())
    await job.is_attended()
    task.cancel()
    await job.is_left()
    assert not job.vanished
    await eventually(lambda: job.vanished == ["party_b"])


async def test_both_ends_notice_a_broken_connection_at_once_and_wait_peer_s(peers: Peers) -> None:
    job = opened(peers)
    task = asyncio.create_task(peers.attend())
    await job.is_attended()
    broken = time.monotonic()
    peers.network.break_()
    await job.is_left()
    assert time.monotonic() - broken < PEER_S
    with pytest.raises(PeerUnreachable, match=r"party_a was gone for 0.5 s \(deadlines.peer_s\)") as caught:
        await task
    assert peers.network.address in caught.value.where
    await eventually(lambda: job.vanished == ["party_b"])


async def test_a_party_that_comes_back_in_time_has_not_vanished(peers: Peers) -> None:
    job = opened(peers, LONG_S)
    task = asyncio.create_task(peers.attend(LONG_S))
    await job.is_attended()
    peers.network.break_()
    await job.is_left()
    peers.network.mend()
    await job.is_attended()
    assert not task.done()
    assert not job.vanished
    task.cancel()


async def test_a_silent_network_is_noticed_by_both_ends_within_keepalive(peers: Peers) -> None:
    job = opened(peers)
    task = asyncio.create_task(peers.attend())
    await job.is_attended()
    silent = time.monotonic()
    peers.network.fall_silent()
    with pytest.raises(PeerUnreachable):
        await task
    await eventually(lambda: job.vanished == ["party_b"])
    assert time.monotonic() - silent < PEER_S + 5 * (QUICK.every_s + QUICK.answer_s)


async def test_a_party_that_never_comes_vanishes_too(peers: Peers) -> None:
    job = opened(peers)
    job.attendees.expect(["party_b", "coordinator"])
    task = asyncio.create_task(peers.attend())
    await job.is_attended()
    await eventually(lambda: job.vanished == ["coordinator"])
    task.cancel()


async def test_the_end_of_the_job_reaches_those_who_attend_and_stops_the_clocks(peers: Peers) -> None:
    job = opened(peers)
    job.attendees.expect(["coordinator"])
    task = asyncio.create_task(peers.attend())
    await job.is_attended()
    job.attendees.end("party_b cancelled it")
    with pytest.raises(JobError, match="party_a ended the job: party_b cancelled it"):
        await task
    await job.is_left()
    assert not job.attendees._timers


async def test_the_reason_that_a_peer_gives_is_one_printable_line(peers: Peers) -> None:
    job = opened(peers)
    task = asyncio.create_task(peers.attend())
    await job.is_attended()
    job.attendees.end("\x1b[2Jall is well\r\nINFO vfl: done\u202e" + "x" * 100_000)
    with pytest.raises(JobError, match="all is well  INFO vfl: done x") as caught:
        await task
    assert caught.value.what.isprintable()
    assert len(caught.value.what) < 2000


async def test_a_peer_that_was_restarted_does_not_know_the_job(peers: Peers) -> None:
    job = opened(peers, LONG_S)
    task = asyncio.create_task(peers.attend(LONG_S))
    await job.is_attended()
    peers.network.break_()
    peers.servicer.attendees = None
    peers.network.mend()
    with pytest.raises(UnknownJob):
        await task


async def test_an_attendance_that_is_over_leaves_no_task_behind(peers: Peers) -> None:
    job = opened(peers)
    task = asyncio.create_task(peers.attend())
    await job.is_attended()
    job.attendees.end("over")
    with pytest.raises(JobError):
        await task
    await eventually(lambda: not tasks_of_calls())


def tasks_of_calls() -> list[str]:
    """The tasks beside this test's own, the relay's and those in which the server awaits calls."""
    idle = ("_request_call", "_request_registered_call", "_server_main_loop", "Network.", "test_")
    tasks = [repr(task) for task in asyncio.all_tasks()]
    return [task for task in tasks if not any(word in task for word in idle)]


@pytest.mark.e2e
async def test_a_killed_process_is_noticed_at_once_and_a_busy_one_is_not_taken_for_dead(
    tmp_path: Path,
) -> None:
    _, at_b = certified(tmp_path, "party_a", "party_b")
    present = asyncio.Event()
    async with process_serving(tmp_path) as (address, process), dialled(address, at_b) as stub:
        attendance = attend(
            stub.Attend, TURN, peer="party_a", address=address, peer_s=PEER_S, on_present=present.set
        )
        task = asyncio.create_task(attendance)
        await present.wait()
        await stub.Prepare(he.PrepareRequest(turn=TURN), timeout=CALL_S)
        assert not task.done()
        killed = time.monotonic()
        process.kill()
        with pytest.raises(PeerUnreachable, match="party_a"):
            await task
        assert time.monotonic() - killed < PEER_S + 1
