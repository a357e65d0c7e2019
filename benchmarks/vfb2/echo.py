"""A bare gRPC stream between two processes over mutual TLS, with messages as long as a dominated update's.

No protocol, no arithmetic, no disk: a number of bytes goes there, another number comes back, twice an update,
as ScoreRequest and both PartialSums, Update and Applied do. It is what gRPC's asyncio leaves to be had from
Python on this machine at this moment, each end on a processor of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from benchmarks.vfb2.processor import pinned

_METHOD = "/vfl.benchmark.Echo/Stream"
_REQUEST, _UPDATE = b"\x00", b"\x01"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the four messages of one dominated update."""

    request: int
    total: int
    update: int
    applied: int


async def serve(certs: Path, name: str, sizes: Sizes) -> None:
    """Answer until the process is stopped; print the port first."""

    async def stream(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
        total, applied = bytes(sizes.total), bytes(sizes.applied)
        async for message in requests:
            yield total if message[:1] == _REQUEST else applied

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(stream)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("vfl.benchmark.Echo", {"Stream": handler}),)
    )
    ca, cert, key = _files(certs, name)
    credentials = grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


async def rate(certs: Path, sizes: Sizes, window: int, seconds: float) -> float:
    """Return updates a second of a stream on which `window` updates are under way at a time."""
    arguments = [str(certs), "a1", *map(str, (sizes.request, sizes.total, sizes.update, sizes.applied))]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.vfb2.echo", *arguments, stdout=PIPE
    )
    try:
        line = b"" if process.stdout is None else await process.stdout.readline()
        ca, cert, key = _files(certs, "b1")
        credentials = grpc.ssl_channel_credentials(ca, key, cert)
        options = (("grpc.ssl_target_name_override", "a1"),)
        with pinned(os.getpid(), 0), pinned(process.pid, 1):
            async with grpc.aio.secure_channel(f"127.0.0.1:{int(line)}", credentials, options) as channel:
                await _measured(channel, sizes, window, seconds / 4)  # warm up
                return await _measured(channel, sizes, window, seconds)
    finally:
        process.kill()
        await process.wait()


async def _measured(channel: grpc.aio.Channel, sizes: Sizes, window: int, seconds: float) -> float:
    call = channel.stream_stream(_METHOD)()
    request = _REQUEST + bytes(sizes.request - 1)
    update = _UPDATE + bytes(sizes.update - 1)
    began, done = time.perf_counter(), 0
    for _ in range(window):
        await call.write(request)
    while time.perf_counter() - began < seconds:
        if len(await call.read()) == sizes.total:
            await call.write(update)
        else:
            done += 1
            await call.write(request)
    spent = time.perf_counter() - began
    call.cancel()
    return done / spent


def _files(certs: Path, name: str) -> tuple[bytes, bytes, bytes]:
    paths = (certs / "ca.pem", certs / f"{name}.pem", certs / f"{name}.key")
    ca, cert, key = (path.read_bytes() for path in paths)
    return ca, cert, key


if __name__ == "__main__":
    folder, party, *numbers = sys.argv[1:]
    asyncio.run(serve(Path(folder), party, Sizes(*map(int, numbers))))
