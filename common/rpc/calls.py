"""One call to a peer: bytes on gRPC's side, checked messages and typed errors on ours.

gRPC's own typed calls swallow what goes wrong in a serialiser (the receiver gets None) and in the
iterator that feeds a stream (the caller gets CancelledError). So gRPC moves bytes here, and messages
become bytes and back in these classes, where an error reaches the one who awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from common.errors import LocalProtocolError, RemoteProtocolError
from common.rpc.failures import detail_in, peer_errors
from common.rpc.pb.job_pb2 import ErrorDetail
from common.rpc.wiretap import Wiretap

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

Requests = AsyncIterable[Q] | Iterable[Q]


@dataclass(frozen=True, slots=True)
class Line(Generic[R]):
    """What a call needs to know beside its messages.

    Attributes:
        peer: The party that is called.
        address: Where.
        method: The call's name for messages, for example `OpenJob`.
        timeout_s: Its deadline, None for a call that is held open.
    """

    peer: str
    address: str
    method: str
    parse: Callable[[bytes], R]
    wiretap: Wiretap
    timeout_s: float | None = None


class Feed(Generic[Q]):
    """Turns the caller's requests into bytes as gRPC asks for them, and keeps what went wrong meanwhile."""

    def __init__(self, requests: Requests[Q], wiretap: Wiretap, peer: str) -> None:
        self._requests = requests
        self._wiretap = wiretap
        self._peer = peer
        self.error: Exception | None = None

    async def wires(self) -> AsyncIterator[bytes]:
        """Yield the requests' bytes."""
        try:
            async for request in _async(self._requests):
                yield self._wiretap.encode(request, self._peer)
        except Exception as exc:
            self.error = exc
            raise


class _PeersStatus:
    """gRPC's inner call, but it lets the peer say how the call ended.

    A peer that refuses ends the call while we may still be writing. gRPC (1.85) then notes an error of its
    own, "Internal error from Core", in the place of the peer's status, which is just arriving: every fifth
    refusal of a stream, a lost job among them, would look like a failure that nobody can name. Whatever ends
    a call has a status, so nothing has to be noted.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def set_internal_error(self, error: str) -> None:
        """Leave the status to the peer, or to the connection that broke."""


class _Call(Generic[R]):
    """The part of a call that is the same for all four kinds; `raw` is gRPC's call on bytes."""

    def __init__(self, raw: Any, line: Line[R], feed: Feed[Any] | None = None) -> None:
        if feed is not None:
            raw._cython_call = _PeersStatus(raw._cython_call)
        self._raw = raw
        self._line = line
        self._feed = feed

    @contextmanager
    def _failures(self) -> Any:
        line = self._line
        try:
            with peer_errors(line.peer, line.address, line.method, line.timeout_s), self._details():
                yield
        except asyncio.CancelledError:
            # gRPC cancels the call when our own feed raised; that error is what the caller must see,
            # unless the caller's task itself is being cancelled.
            task = asyncio.current_task()
            if self._feed is None or self._feed.error is None or (task is not None and task.cancelling()):
                raise
            raise self._feed.error from None

    @contextmanager
    def _details(self) -> Iterator[None]:
        """Let the wiretap see what comes with an error, too."""
        try:
            yield
        except grpc.aio.AioRpcError as exc:
            wire = detail_in(exc)
            if wire is not None:
                with suppress(RemoteProtocolError):
                    self._line.wiretap.decode(ErrorDetail.FromString, wire, self._line.peer)
            raise

    def _decoded(self, wire: bytes) -> R:
        return self._line.wiretap.decode(self._line.parse, wire, self._line.peer)

    def cancelled(self) -> bool:
        return bool(self._raw.cancelled())

    def done(self) -> bool:
        return bool(self._raw.done())

    def cancel(self) -> bool:
        return bool(self._raw.cancel())

    def time_remaining(self) -> float | None:
        remaining: float | None = self._raw.time_remaining()
        return remaining

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._raw.add_done_callback(callback)

    async def initial_metadata(self) -> grpc.aio.Metadata:
        metadata: grpc.aio.Metadata = await self._raw.initial_metadata()
        return metadata

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        metadata: grpc.aio.Metadata = await self._raw.trailing_metadata()
        return metadata

    async def code(self) -> grpc.StatusCode:
        code: grpc.StatusCode = await self._raw.code()
        return code

    async def details(self) -> str:
        return str(await self._raw.details())

    async def wait_for_connection(self) -> None:
        with self._failures():
            await self._raw.wait_for_connection()

    async def read(self) -> NoReturn:
        raise LocalProtocolError("responses are read with `async for`")

    async def write(self, request: Any) -> NoReturn:
        raise LocalProtocolError("requests are given as an iterator")

    async def done_writing(self) -> NoReturn:
        raise LocalProtocolError("requests are given as an iterator")


class _Single(_Call[R]):
    """A call with one response: await it."""

    def __await__(self) -> Generator[Any, None, R]:
        return self._response().__await__()

    async def _response(self) -> R:
        with self._failures():
            wire: bytes = await self._raw
        return self._decoded(wire)


class _Stream(_Call[R]):
    """A call with many responses: iterate over it; leaving the loop ends the call."""

    def __aiter__(self) -> AsyncIterator[R]:
        return self._responses()

    async def _responses(self) -> AsyncIterator[R]:
        try:
            with self._failures():
                async for wire in self._raw:
                    yield self._decoded(wire)
        finally:
            self._raw.cancel()


class UnaryUnary(_Single[R], grpc.aio.UnaryUnaryCall[Q, R]):
    """One request, one response."""


class UnaryStream(_Stream[R], grpc.aio.UnaryStreamCall[Q, R]):
    """One request, many responses."""


class StreamUnary(_Single[R], grpc.aio.StreamUnaryCall[Q, R]):
    """Many requests, one response."""


class StreamStream(_Stream[R], grpc.aio.StreamStreamCall[Q, R]):
    """Many requests, many responses."""


async def _async(requests: Requests[Q]) -> AsyncIterator[Q]:
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            yield request
    else:
        for request in requests:
            yield request
