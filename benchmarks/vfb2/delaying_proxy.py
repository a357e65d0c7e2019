"""A TCP proxy that makes a link long: every byte arrives a while later, in order, at full bandwidth.

Companies are not on one switch. What is read is stamped and written when it is due; reading goes on
meanwhile, so that a latency of 20 ms delays a stream by 20 ms and does not throttle it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

_READ_BYTES = 1 << 16
# What may be under way in one direction: 1 Gbit/s for 500 ms. Beyond it the sender has to wait.
_UNDER_WAY_BYTES = 1 << 26


@dataclass(slots=True)
class _UnderWay:
    """Pieces in one direction, each with the moment when it is due; an empty one is the end."""

    pieces: asyncio.Queue[tuple[float, bytes]] = field(default_factory=asyncio.Queue)
    size_bytes: int = 0
    drained: asyncio.Event = field(default_factory=asyncio.Event)


class DelayingProxy:
    """Listens on loopback and passes everything on to one address, `latency_s` later in each direction."""

    def __init__(self, target: tuple[str, int], latency_s: float) -> None:
        self._target = target
        self._latency_s = latency_s
        self._links: set[asyncio.Task[None]] = set()
        self.most_under_way = 0  # pieces in one direction at a time, at most

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[str]:
        """Serve while the block runs; yield our own address."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        try:
            host, own_port = server.sockets[0].getsockname()[:2]
            yield f"{host}:{own_port}"
        finally:
            server.close()
            for link in list(self._links):
                link.cancel()
            await asyncio.gather(*self._links, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._links.add(task)
        task.add_done_callback(self._links.discard)
        # asyncio's streams complain about a handler that ends as cancelled, which is how a proxy stops here.
        with contextlib.closing(writer), contextlib.suppress(asyncio.CancelledError):
            try:
                far_reader, far_writer = await asyncio.open_connection(*self._target)
            except OSError:
                return  # the party is not there (yet): the caller sees its connection closed
            with contextlib.closing(far_writer):
                for end in (writer, far_writer):
                    end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await self._both(self._passing(reader, far_writer), self._passing(far_reader, writer))

    async def _both(self, *directions: Coroutine[Any, Any, None]) -> None:
        """Run both directions until both have ended; a broken one ends the link."""
        tasks = [asyncio.ensure_future(direction) for direction in directions]
        try:
            await asyncio.gather(*tasks)
        except (ConnectionError, TimeoutError):
            pass  # one end is gone; closing both tells the other
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _passing(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        under_way = _UnderWay()
        under_way.drained.set()
        writing = asyncio.ensure_future(self._write(under_way, writer))
        try:
            await self._read(reader, under_way, writing)
            await writing
        finally:
            writing.cancel()

    async def _read(
        self, reader: asyncio.StreamReader, under_way: _UnderWay, writing: asyncio.Future[None]
    ) -> None:
        clock = asyncio.get_running_loop().time
        while not writing.done():
            piece = await reader.read(_READ_BYTES)
            under_way.pieces.put_nowait((clock() + self._latency_s, piece))
            self.most_under_way = max(self.most_under_way, under_way.pieces.qsize())
            if not piece:
                return
            under_way.size_bytes += len(piece)
            if under_way.size_bytes > _UNDER_WAY_BYTES:
                under_way.drained.clear()
                await under_way.drained.wait()

    async def _write(self, under_way: _UnderWay, writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due, piece = await under_way.pieces.get()
            wait_s = due - clock()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if not piece:
                with contextlib.suppress(OSError):  # its other end may have closed it altogether
                    writer.write_eof()
                return
            writer.write(piece)
            await writer.drain()
            under_way.size_bytes -= len(piece)
            under_way.drained.set()
