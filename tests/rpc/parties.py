"""Real parties for the tests of the rpc floor: certificates, a passive party, a network that can break."""

# ruff: noqa: N802 - the methods' names are those of protos/vfl/v1/passive_party.proto

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc.aio

from common.errors import UnknownJob
from common.rpc import certs
from common.rpc.channels import Keepalive, open_channel
from common.rpc.greeting import make_greeting
from common.rpc.identity import caller
from common.rpc.pb import align_pb2 as align
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as job
from common.rpc.pb.passive_party_pb2 import DESCRIPTOR
from common.rpc.pb.passive_party_pb2_grpc import (
    PassivePartyServicer,
    PassivePartyStub,
    add_PassivePartyServicer_to_server,
)
from common.rpc.presence import Attendees
from common.rpc.server import PartyServer
from common.rpc.tls import Security
from common.rpc.wiretap import Wiretap

SERVICE = DESCRIPTOR.services_by_name["PassiveParty"]
TURN = job.Turn(job_id="job-1", job_digest=b"\x01" * 32, round=1)
QUICK = Keepalive(every_s=0.3, answer_s=0.3)
CALL_S = 10.0


class Unchecked(Security):
    """The security of somebody who does not look at his own certificate first."""

    def verify(self, party: str, address: str) -> None:
        """Accept anything."""


def certified(directory: Path, *parties: str) -> list[Security]:
    """Make a CA and a certificate for every party in a directory."""
    certs.create_ca(directory, "a CA for tests")
    return [Security(certs.issue(directory, party)) for party in parties]


class PassivePartyForTests(PassivePartyServicer):
    """Answers every call of a passive party; `failure` is raised by OpenJob and in the middle of streams."""

    def __init__(self, failure: Exception | None = None, attendees: Attendees | None = None) -> None:
        self.failure = failure
        self.attendees: Attendees | None = attendees or Attendees(CALL_S, lambda party: None)
        self.callers: list[str] = []
        self.prepares = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def Greet(self, request: job.Greeting, context: Any) -> job.Greeting:
        self.callers.append(caller(context))
        return make_greeting("party_a", "passive")

    async def OpenJob(self, request: job.OpenJobRequest, context: Any) -> job.OpenJobReply:
        if self.failure is not None:
            raise self.failure
        return job.OpenJobReply(turn=request.turn, rows=442)

    async def Prepare(self, request: he.PrepareRequest, context: Any) -> he.PrepareReply:
        self.prepares.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return he.PrepareReply()

    async def Attend(self, request: job.Attendance, context: Any) -> AsyncIterator[job.Presence]:
        if self.attendees is None:
            raise UnknownJob(f"party_a does not know the job {request.turn.job_id}")
        async for presence in self.attendees.serve(caller(context), request.turn):
            yield presence

    async def EncryptScores(
        self, request: he.ScoresRequest, context: Any
    ) -> AsyncIterator[he.EncryptedScores]:
        for size in range(3):
            yield he.EncryptedScores(turn=request.turn, ciphertexts=b"c" * size)
        if self.failure is not None:
            raise self.failure

    async def ApplyResiduals(
        self, request_iterator: AsyncIterator[he.EncryptedResiduals], context: Any
    ) -> he.RoundApplied:
        total = 0
        async for residuals in request_iterator:
            if self.failure is not None:
                raise self.failure
            total += len(residuals.ciphertexts)
        return he.RoundApplied(turn=job.Turn(job_id=TURN.job_id, round=total))

    async def BlindIds(
        self, request_iterator: AsyncIterator[align.BlindedIds], context: Any
    ) -> AsyncIterator[align.BlindedIds]:
        async for ids in request_iterator:
            if self.failure is not None:
                raise self.failure
            yield ids

    async def SendPartialScores(
        self, request: he.PartialScoresRequest, context: Any
    ) -> AsyncIterator[he.PartialScores]:
        yield he.PartialScores(turn=request.turn, scores=[0.5])

    async def CloseJob(self, request: job.CloseJobRequest, context: Any) -> job.CloseJobReply:
        return job.CloseJobReply(turn=request.turn)


@contextlib.asynccontextmanager
async def serving(
    security: Security,
    servicer: PassivePartyServicer | None = None,
    peers: Sequence[str] = ("party_b",),
    wiretap: Wiretap | None = None,
    keepalive: Keepalive = QUICK,
) -> AsyncIterator[str]:
    """Serve as party_a on a free loopback port; yields the address."""
    server = PartyServer("party_a", "127.0.0.1:0", security, wiretap or Wiretap(), peers, keepalive)
    server.add(add_PassivePartyServicer_to_server, servicer or PassivePartyForTests(), SERVICE)
    address = await server.start()
    try:
        yield address
    finally:
        await server.stop(0)


@contextlib.asynccontextmanager
async def dialled(
    address: str,
    security: Security,
    own: str = "party_b",
    wiretap: Wiretap | None = None,
    peer: str = "party_a",
) -> AsyncIterator[Any]:
    """Open a channel to party_a; yields its stub."""
    channel = open_channel(peer, address, own, security, wiretap or Wiretap(), QUICK)
    async with channel:
        yield PassivePartyStub(channel)


@contextlib.asynccontextmanager
async def process_serving(directory: Path) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Start party_a as a process (party_a_process.py); yields its address and the process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.rpc.party_a_process", str(directory)),
        cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().strip(), process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def greeted(address: str, security: Security, own: str = "party_b") -> str:
    """Greet party_a as a good peer does; returns the name that answers."""
    async with dialled(address, security, own) as stub:
        answer = await stub.Greet(make_greeting(own, "active"), timeout=CALL_S)
        return str(answer.party)


def raw_channel(address: str, security: Security, peer: str = "party_a") -> grpc.aio.Channel:
    """Open gRPC's own channel, on which one can send any bytes."""
    options = [("grpc.ssl_target_name_override", peer)]
    return grpc.aio.secure_channel(address, security.channel_credentials(), options)


class Network:
    """The wire between two parties, as a TCP relay that can break or fall silent."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._carries = asyncio.Event()
        self._carries.set()
        self._refuses = False
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Network:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.break_()
        assert self._server is not None
        self._server.close()

    @property
    def address(self) -> str:
        """Where to dial instead of the party itself."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    def break_(self) -> None:
        """Cut all connections, as a killed process does, and refuse new ones."""
        self._refuses = True
        self._carries.set()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def mend(self) -> None:
        """Carry everything again."""
        self._refuses = False
        self._carries.set()

    def fall_silent(self) -> None:
        """Keep the connections, and carry nothing."""
        self._carries.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._writers += [writer, far_writer]
        with contextlib.suppress(OSError):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(reader, far_writer))
                group.create_task(self._carry(far_reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._carries.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


async def eventually(holds: Callable[[], bool], within_s: float = CALL_S) -> None:
    """Let other tasks run until something holds; fails after `within_s` seconds."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - what is awaited is state, and has no event
            await asyncio.sleep(0.01)
