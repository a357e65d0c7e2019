"""A party's server: ports, health, reflection, and what it takes for a servicer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from common.errors import ConfigError, LocalProtocolError, PeerRefused
from common.rpc.addresses import is_loopback, split_address
from common.rpc.chunks import CHUNK_BYTES, chunk_slices, rows_per_chunk
from common.rpc.pb import job_pb2 as job
from common.rpc.pb.passive_party_pb2_grpc import PassivePartyServicer, add_PassivePartyServicer_to_server
from common.rpc.server import MOST_STREAMS, PartyServer
from common.rpc.tls import Security
from common.rpc.wiretap import Wiretap
from tests.rpc.parties import CALL_S, SERVICE, TURN, certified, dialled, raw_channel, serving

PLAIN = Security(None)


async def test_port_0_is_reported_as_the_port_that_was_taken() -> None:
    async with serving(PLAIN) as address:
        host, port = split_address(address)
        assert host == "127.0.0.1"
        with socket.create_connection((host, port), timeout=CALL_S):
            pass


async def test_two_servers_cannot_share_a_port() -> None:
    async with serving(PLAIN) as address:
        second = PartyServer("party_c", address, PLAIN, Wiretap(), [])
        with pytest.raises(ConfigError, match="party_c cannot listen on"):
            await second.start()
        await second.stop(0)


async def test_a_connection_has_a_limited_number_of_calls() -> None:
    """A peer that opens calls and says nothing in them must not fill memory (RFC 9113, 6.5.2)."""
    async with serving(PLAIN) as address:
        reader, writer = await asyncio.open_connection(*split_address(address))
        with contextlib.closing(writer):
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            size, kind, _, _ = struct.unpack("!3sBBI", await reader.readexactly(9))
            settings = dict(struct.iter_unpack("!HI", await reader.readexactly(int.from_bytes(size))))
    assert (kind, settings[3]) == (4, MOST_STREAMS)


@pytest.mark.parametrize("service", ["", "vfl.v1.PassiveParty"])
async def test_health_is_reported_for_the_server_and_for_the_service(tmp_path: Path, service: str) -> None:
    at_a, at_b = certified(tmp_path, "party_a", "party_b")
    async with serving(at_a) as address, raw_channel(address, at_b) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=CALL_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_lists_the_services(tmp_path: Path) -> None:
    at_a, at_b = certified(tmp_path, "party_a", "party_b")
    async with serving(at_a) as address, raw_channel(address, at_b) as channel:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        answers = [answer async for answer in stub.ServerReflectionInfo(iter([request]), timeout=CALL_S)]
    names = {service.name for service in answers[0].list_services_response.service}
    assert names >= {"vfl.v1.PassiveParty", "grpc.health.v1.Health"}


async def test_a_method_that_is_not_written_is_unimplemented(tmp_path: Path) -> None:
    at_a, at_b = certified(tmp_path, "party_a", "party_b")
    async with serving(at_a, PassivePartyServicer()) as address, dialled(address, at_b) as stub:
        with pytest.raises(PeerRefused, match="does not offer CloseJob"):
            await stub.CloseJob(job.CloseJobRequest(turn=TURN), timeout=CALL_S)


async def test_a_blocking_method_is_not_served() -> None:
    class Blocking(PassivePartyServicer):
        def CloseJob(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name in the .proto file
            return job.CloseJobReply()

    server = PartyServer("party_a", "127.0.0.1:0", PLAIN, Wiretap(), [])
    with pytest.raises(LocalProtocolError, match="must be `async def`"):
        server.add(add_PassivePartyServicer_to_server, Blocking(), SERVICE)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:7001", True),
        ("127.8.9.1:0", True),
        ("[::1]:7001", True),
        ("localhost:7001", True),
        ("0.0.0.0:7001", False),
        ("[::]:7001", False),
        ("party-a:7001", False),
        ("localhost.example.org:7001", False),
    ],
)
def test_loopback_is_told_from_everything_else(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


@pytest.mark.parametrize(
    "address", ["", "7001", ":7001", "party-a", "party-a:", "party-a:70000", "::1:7001", "a:-1", "a:²"]
)
def test_an_address_without_host_or_port_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="is not an address"):
        split_address(address)


@pytest.mark.parametrize(
    ("rows", "row_bytes"), [(0, 512), (1, 512), (1024, 512), (1025, 512), (7, CHUNK_BYTES)]
)
def test_chunks_cover_all_rows_once_and_none_is_too_large(rows: int, row_bytes: int) -> None:
    slices = list(chunk_slices(rows, row_bytes))
    assert [row for part in slices for row in range(rows)[part]] == list(range(rows))
    assert all((part.stop - part.start) * row_bytes <= CHUNK_BYTES for part in slices)


@pytest.mark.parametrize("row_bytes", [0, -1, CHUNK_BYTES + 1])
def test_a_row_that_fits_no_chunk_is_a_bug(row_bytes: int) -> None:
    with pytest.raises(LocalProtocolError):
        rows_per_chunk(row_bytes)
