"""The proxy of the experiments changes when bytes arrive and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import random

import pytest

from benchmarks.vfb2.delaying_proxy import DelayingProxy


async def serving(handle):
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[:2]


async def echo(reader, writer):
    while piece := await reader.read(4096):
        writer.write(piece)
        await writer.drain()
    writer.close()


def dial(address):
    host, port = address.split(":")
    return asyncio.open_connection(host, int(port))


async def test_every_byte_arrives_in_order_both_ways():
    server, target = await serving(echo)
    content = random.Random(3).randbytes(3_000_000)
    async with server, DelayingProxy(target, 0.002).listening() as address:
        reader, writer = await dial(address)

        async def send():
            for at in range(0, len(content), 100_001):
                writer.write(content[at : at + 100_001])
                await writer.drain()
            writer.write_eof()

        _, received = await asyncio.gather(send(), reader.read(-1))
        writer.close()
    assert hashlib.sha256(received).digest() == hashlib.sha256(content).digest()


async def test_nothing_arrives_before_its_time():
    server, target = await serving(echo)
    clock = asyncio.get_running_loop().time
    async with server, DelayingProxy(target, 0.05).listening() as address:
        reader, writer = await dial(address)
        for _ in range(3):
            begun = clock()
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
            assert clock() - begun >= 2 * 0.05  # there and back; a lower bound holds on any machine
        writer.close()


async def test_a_long_link_holds_many_pieces_at_once_instead_of_one_a_round_trip():
    arrived = asyncio.Event()
    total = 0

    async def swallow(reader, writer):
        nonlocal total
        while piece := await reader.read(1 << 16):
            total += len(piece)
        arrived.set()
        writer.close()

    server, target = await serving(swallow)
    proxy = DelayingProxy(target, 0.2)
    async with server, proxy.listening() as address:
        _, writer = await dial(address)
        for _ in range(40):
            writer.write(bytes(1 << 16))
            await writer.drain()
        writer.write_eof()
        await arrived.wait()
        writer.close()
    assert total == 40 << 16
    assert proxy.most_under_way >= 10


@pytest.mark.parametrize("end", ["client", "server"])
async def test_when_one_end_hangs_up_so_does_the_other(end):
    closed = asyncio.Event()

    async def serve(reader, writer):
        if end == "client":
            await reader.read(-1)
            closed.set()
        writer.close()

    server, target = await serving(serve)
    async with server, DelayingProxy(target, 0.001).listening() as address:
        reader, writer = await dial(address)
        if end == "client":
            writer.close()
            await closed.wait()
        else:
            assert await reader.read(-1) == b""
            writer.close()


async def test_a_target_that_is_not_there_closes_the_connection():
    async with DelayingProxy(("127.0.0.1", 1), 0.001).listening() as address:
        reader, writer = await dial(address)
        assert await reader.read(-1) == b""
        writer.close()
