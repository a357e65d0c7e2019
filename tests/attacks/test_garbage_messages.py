"""Bytes that are no message are answered with a typed error, and the service goes on."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import ServiceDescriptor

from common.errors import PeerFailed, PeerRefused, RemoteProtocolError
from common.rpc.channels import peer_errors
from common.rpc.failures import ERROR_METADATA
from common.rpc.pb import (
    active_party_pb2,
    active_party_pb2_grpc,
    coordinator_pb2,
    coordinator_pb2_grpc,
    passive_party_pb2,
    passive_party_pb2_grpc,
)
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as job
from common.rpc.pb.job_pb2 import ErrorDetail
from common.rpc.server import PartyServer
from common.rpc.tls import Security
from common.rpc.wiretap import Wiretap
from tests.rpc.parties import (
    CALL_S,
    TURN,
    certified,
    dialled,
    greeted,
    raw_channel,
    serving,
)

SERVICES = {
    "PassiveParty": passive_party_pb2_grpc.add_PassivePartyServicer_to_server,
    "ActiveParty": active_party_pb2_grpc.add_ActivePartyServicer_to_server,
    "Coordinator": coordinator_pb2_grpc.add_CoordinatorServicer_to_server,
}
FILES = (passive_party_pb2, active_party_pb2, coordinator_pb2)
DESCRIPTORS = {
    name: file.DESCRIPTOR.services_by_name[name] for name, file in zip(SERVICES, FILES, strict=True)
}
METHODS = [
    (f"/{service.full_name}/{method.name}", (method.client_streaming, method.server_streaming))
    for service in DESCRIPTORS.values()
    for method in service.methods
]
LIMIT = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Victim:
    """party_a, serving for party_b, who sends the garbage: the certificate is good."""

    address: str
    at_a: Security
    at_b: Security

    async def call(self, path: str, wire: bytes, many: tuple[bool, bool] = (False, False)) -> Any:
        """Send bytes to a method; returns the (last) response."""
        async with raw_channel(self.address, self.at_b) as channel:
            kinds = {
                (False, False): channel.unary_unary,
                (True, False): channel.stream_unary,
                (False, True): channel.unary_stream,
                (True, True): channel.stream_stream,
            }
            call: Any = kinds[many](path)(iter([wire]) if many[0] else wire, timeout=CALL_S)
            with peer_errors("party_a", self.address, path):
                if not many[1]:
                    return await call
                return [response async for response in call][-1]


@pytest.fixture
async def victim(tmp_path: Path) -> AsyncIterator[Victim]:
    at_a, at_b = certified(tmp_path, "party_a", "party_b")
    async with serving(at_a) as address:
        yield Victim(address, at_a, at_b)
        assert await greeted(address, at_b) == "party_a"


def garbage(size: int) -> bytes:
    return b"\xff" + random.Random(20).randbytes(size - 1)


class ReachedError(Exception):
    """Garbage came as far as a servicer."""


def untouched(service: ServiceDescriptor) -> Any:
    """Return a servicer none of whose methods may be given a message."""

    async def single(self: Any, request: Any, context: Any) -> Any:
        if hasattr(request, "__aiter__"):
            request = await anext(request)
        raise ReachedError(type(request).__name__)

    async def stream(self: Any, request: Any, context: Any) -> AsyncIterator[Any]:
        if hasattr(request, "__aiter__"):
            request = await anext(request)
        raise ReachedError(type(request).__name__)
        yield

    methods = {method.name: stream if method.server_streaming else single for method in service.methods}
    return type("Untouched", (), methods)()


@pytest.mark.parametrize(("path", "streams"), METHODS)
async def test_garbage_is_refused_by_every_method_before_it_reaches_it(
    tmp_path: Path, path: str, streams: tuple[bool, bool]
) -> None:
    at_a, at_b = certified(tmp_path, "party_a", "party_b")
    server = PartyServer("party_a", "127.0.0.1:0", at_a, Wiretap(), ["party_b"])
    for name, register in SERVICES.items():
        server.add(register, untouched(DESCRIPTORS[name]), DESCRIPTORS[name])
    victim = Victim(await server.start(), at_a, at_b)
    with pytest.raises(PeerRefused, match="rejected our message: party_b sent 64 bytes that are not"):
        await victim.call(path, garbage(64), streams)
    await server.stop(0)


async def test_a_truncated_message_is_refused(victim: Victim) -> None:
    wire = job.OpenJobRequest(turn=TURN, job_json=b"{}" * 100, alignment_id=b"n" * 32).SerializeToString()
    with pytest.raises(PeerRefused, match="rejected our message"):
        await victim.call("/vfl.v1.PassiveParty/OpenJob", wire[:-5])


async def test_text_that_is_not_utf8_is_refused(victim: Victim) -> None:
    wire = job.Greeting(party="party_b").SerializeToString().replace(b"party_b", b"party\xff\xfe")
    with pytest.raises(PeerRefused, match="rejected our message"):
        await victim.call("/vfl.v1.PassiveParty/Greet", wire)


@pytest.mark.parametrize(
    "path", ["/vfl.v1.PassiveParty/Obey", "/vfl.v1.Coordinator/DecryptLoss", "/pickle.Loads/Run", "/", "x"]
)
async def test_an_unknown_method_is_refused(victim: Victim, path: str) -> None:
    with pytest.raises((PeerRefused, PeerFailed)):
        await victim.call(path, b"")


async def test_a_request_above_the_limit_is_refused(victim: Victim) -> None:
    with pytest.raises(PeerFailed, match="takes no message of that size"):
        await victim.call("/vfl.v1.PassiveParty/OpenJob", bytes(LIMIT + 1))


async def test_a_message_above_the_limit_inside_a_stream_is_refused(victim: Victim) -> None:
    with pytest.raises(PeerFailed, match="takes no message of that size"):
        await victim.call("/vfl.v1.PassiveParty/ApplyResiduals", bytes(LIMIT + 1), (True, False))


@pytest.mark.parametrize(
    "payload",
    [
        garbage(100_000),
        b"GET / HTTP/1.1\r\nHost: party_a\r\n\r\n",
        b"\x16\x03\x01\x00\xff" + garbage(300),
        b"\x00",
    ],
    ids=["noise", "http", "half-a-hello", "one-byte"],
)
async def test_garbage_on_the_socket_is_dropped(victim: Victim, payload: bytes) -> None:
    await pour(victim.address, payload)


async def test_garbage_under_a_good_certificate_is_dropped(victim: Victim) -> None:
    assert victim.at_b.tls is not None
    context = ssl.create_default_context(cafile=str(victim.at_b.tls.ca))
    context.check_hostname = False
    context.load_cert_chain(victim.at_b.tls.cert, victim.at_b.tls.key)
    context.set_alpn_protocols(["h2"])
    await pour(victim.address, garbage(100_000), context)


async def test_many_half_open_connections_do_not_keep_others_out(victim: Victim) -> None:
    host, _, port = victim.address.rpartition(":")
    writers = [(await asyncio.open_connection(host, int(port)))[1] for _ in range(100)]
    assert await greeted(victim.address, victim.at_b) == "party_a"
    for writer in writers:
        writer.transport.abort()


async def pour(address: str, payload: bytes, context: ssl.SSLContext | None = None) -> None:
    """Write bytes to a socket, and read until nothing comes any more."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(payload)
        await writer.drain()
        writer.write_eof() if context is None else writer.close()
        async with asyncio.timeout(2):
            await reader.read()
    writer.transport.abort()


class Liar:
    """A peer with a good certificate that answers Greet and EncryptScores with bytes of its choice."""

    def __init__(self, response: bytes, detail: bytes | None = None) -> None:
        self._response = response
        self._detail = detail

    async def greet(self, request: bytes, context: Any) -> bytes:
        if self._detail is not None:
            await context.abort(grpc.StatusCode.ABORTED, "no", ((ERROR_METADATA, self._detail),))
        return self._response

    async def encrypt_scores(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b""
        yield self._response

    @contextlib.asynccontextmanager
    async def serving(self, security: Security) -> AsyncIterator[str]:
        handlers = {
            "Greet": grpc.unary_unary_rpc_method_handler(self.greet),
            "EncryptScores": grpc.unary_stream_rpc_method_handler(self.encrypt_scores),
        }
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("vfl.v1.PassiveParty", handlers),)
        )
        port = server.add_secure_port("127.0.0.1:0", security.server_credentials())
        await server.start()
        yield f"127.0.0.1:{port}"
        await server.stop(0)


async def test_a_response_that_is_garbage_is_the_peers_fault(victim: Victim) -> None:
    async with Liar(garbage(64)).serving(victim.at_a) as address, dialled(address, victim.at_b) as stub:
        with pytest.raises(RemoteProtocolError, match="party_a sent 64 bytes"):
            await stub.Greet(job.Greeting(), timeout=CALL_S)
        with pytest.raises(RemoteProtocolError, match="party_a sent 64 bytes"):
            async for _ in stub.EncryptScores(he.ScoresRequest(turn=TURN), timeout=CALL_S):
                pass


async def test_a_response_above_the_limit_is_the_peers_fault(victim: Victim) -> None:
    async with Liar(bytes(LIMIT + 1)).serving(victim.at_a) as address, dialled(address, victim.at_b) as stub:
        with pytest.raises(RemoteProtocolError, match="too large"):
            await stub.Greet(job.Greeting(), timeout=CALL_S)


@pytest.mark.parametrize(
    "detail",
    [
        ErrorDetail(error="SystemExit", what="x").SerializeToString(),
        ErrorDetail(error="__import__('os').system('true')", what="x").SerializeToString(),
        ErrorDetail(error="LocalProtocolError", what="x").SerializeToString(),
        b"\xff\xff\xff",
        b"",
    ],
)
async def test_an_invented_error_is_a_failure_of_the_peer(victim: Victim, detail: bytes) -> None:
    async with Liar(b"", detail).serving(victim.at_a) as address, dialled(address, victim.at_b) as stub:
        with pytest.raises(PeerFailed, match="party_a"):
            await stub.Greet(job.Greeting(), timeout=CALL_S)


async def test_an_error_text_cannot_move_the_cursor_or_forge_a_log_line(victim: Victim) -> None:
    text = "\x1b[2J\x1b[1;1Hall is well\r\nINFO vfl: done\u202e" + "x" * 3000
    detail = ErrorDetail(error="JobError", what=text, where=text, advice=text).SerializeToString()
    async with Liar(b"", detail).serving(victim.at_a) as address, dialled(address, victim.at_b) as stub:
        with pytest.raises(Exception, match="all is well") as caught:
            await stub.Greet(job.Greeting(), timeout=CALL_S)
    block = caught.value.block()  # type: ignore[attr-defined]
    assert len(block.splitlines()) == 3
    assert all(line.isprintable() for line in block.splitlines())
    assert len(block) < 6000
