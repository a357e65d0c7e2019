"""Channels to a peer: mutual TLS under the peer's party name, keepalive, deadlines, typed errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from common.errors import LocalProtocolError
from common.rpc.addresses import is_loopback, split_address
from common.rpc.calls import Feed, Line, Requests, StreamStream, StreamUnary, UnaryStream, UnaryUnary
from common.rpc.failures import Deadline, peer_errors
from common.rpc.identity import PARTY_METADATA
from common.rpc.tls import Security
from common.rpc.wiretap import Wiretap

__all__ = ["HELD_OPEN", "KEEPALIVE", "Deadline", "Keepalive", "open_channel", "peer_errors"]

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
_Parse = Callable[[bytes], R]

HELD_OPEN = Deadline(math.inf, "held open")
"""The timeout of a call that lasts as long as a job; keepalive, not a deadline, notices its end."""

_FIRST_RECONNECT_MS = 200
_LAST_RECONNECT_MS = 2_000
"""gRPC would wait up to two minutes between attempts; a peer has `peer_s` (30 s) to come back."""
_CONNECT_MS = 5_000
"""gRPC would give an attempt 20 s; one that was made while the network was silent must not take so long."""


@dataclass(frozen=True, slots=True)
class Keepalive:
    """How soon a silent network is noticed: `every_s` without traffic, then `answer_s` without an answer."""

    every_s: float = 10.0
    answer_s: float = 10.0

    def options(self) -> list[tuple[str, int]]:
        """Return gRPC's settings, the same at both ends; a server permits a client's pings at this pace."""
        return [
            ("grpc.keepalive_time_ms", int(self.every_s * 1000)),
            ("grpc.keepalive_timeout_ms", int(self.answer_s * 1000)),
            # Without this one gRPC waits a minute for the answer, whatever the line above says (1.85).
            ("grpc.http2.ping_timeout_ms", int(self.answer_s * 1000)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        ]


KEEPALIVE = Keepalive()
"""The pace of every channel and server outside tests: a silent network is noticed within 20 s."""


def open_channel(
    peer: str,
    address: str,
    own: str,
    security: Security,
    wiretap: Wiretap,
    keepalive: Keepalive = KEEPALIVE,
) -> grpc.aio.Channel:
    """Return a channel for the generated stubs; it connects at the first call.

    Every call needs a `timeout` (HELD_OPEN if it is held open) and raises typed errors that name the
    peer and its address. Requests are given whole or as an iterator, responses awaited or iterated over.

    Args:
        peer: The party that must be there: its name must be in the server's certificate.
        address: `host:port`.
        own: This party.
        security: Our certificates.
        wiretap: Counts, checks and shows what passes.
        keepalive: How soon a silent network is noticed.

    Raises:
        ConfigError: The address or our own certificates are wrong, or plaintext would leave this machine.
    """
    split_address(address)
    security.verify(own, address)
    options: list[tuple[str, Any]] = [
        *keepalive.options(),
        ("grpc.initial_reconnect_backoff_ms", _FIRST_RECONNECT_MS),
        ("grpc.max_reconnect_backoff_ms", _LAST_RECONNECT_MS),
        ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
    ]
    if is_loopback(address):
        options.append(("grpc.enable_http_proxy", 0))  # No proxy can reach our own loopback.
    if security.tls is None:
        raw = grpc.aio.insecure_channel(address, options)
        return PeerChannel(raw, _Peer(peer, address, wiretap, ((PARTY_METADATA, own),)))
    options.append(("grpc.ssl_target_name_override", peer))
    raw = grpc.aio.secure_channel(address, security.channel_credentials(), options)
    return PeerChannel(raw, _Peer(peer, address, wiretap, ()))


@dataclass(frozen=True, slots=True)
class _Peer:
    name: str
    address: str
    wiretap: Wiretap
    metadata: tuple[tuple[str, str], ...]


class PeerChannel(grpc.aio.Channel):
    """gRPC's channel, on which the generated stubs' calls become ours (calls.py)."""

    def __init__(self, raw: grpc.aio.Channel, peer: _Peer) -> None:
        self._raw = raw
        self._peer = peer

    def unary_unary(  # type: ignore[override]
        self, method: str, request_serializer: Any, response_deserializer: _Parse[R], **_: Any
    ) -> grpc.aio.UnaryUnaryMultiCallable[Any, R]:
        return _UnaryUnary(
            self._raw.unary_unary(method), self._peer, self._line(method, response_deserializer)
        )

    def unary_stream(  # type: ignore[override]
        self, method: str, request_serializer: Any, response_deserializer: _Parse[R], **_: Any
    ) -> grpc.aio.UnaryStreamMultiCallable[Any, R]:
        return _UnaryStream(
            self._raw.unary_stream(method), self._peer, self._line(method, response_deserializer)
        )

    def stream_unary(  # type: ignore[override]
        self, method: str, request_serializer: Any, response_deserializer: _Parse[R], **_: Any
    ) -> grpc.aio.StreamUnaryMultiCallable[Any, R]:
        return _StreamUnary(
            self._raw.stream_unary(method), self._peer, self._line(method, response_deserializer)
        )

    def stream_stream(  # type: ignore[override]
        self, method: str, request_serializer: Any, response_deserializer: _Parse[R], **_: Any
    ) -> grpc.aio.StreamStreamMultiCallable[Any, R]:
        return _StreamStream(
            self._raw.stream_stream(method), self._peer, self._line(method, response_deserializer)
        )

    def _line(self, method: str, parse: _Parse[R]) -> Line[R]:
        peer = self._peer
        return Line(peer.name, peer.address, method.rpartition("/")[2], parse, peer.wiretap)

    async def close(self, grace: float | None = None) -> None:
        await self._raw.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._raw.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._raw.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._raw.channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.close()


class _Callable(Generic[R]):
    """A method of a peer; its four kinds differ in whether requests and responses are many."""

    def __init__(self, raw: Any, peer: _Peer, line: Line[R]) -> None:
        self._raw = raw
        self._peer = peer
        self._line = line

    def _start(self, request: Any, settings: dict[str, Any]) -> tuple[Any, Line[R]]:
        line = replace(self._line, timeout_s=_required(settings.pop("timeout", None), self._line))
        settings["metadata"] = (*(settings.pop("metadata", None) or ()), *self._peer.metadata)
        timeout_s = None if line.timeout_s == math.inf else line.timeout_s
        return self._raw(request, timeout=timeout_s, **settings), line

    def _encoded(self, request: Message) -> bytes:
        return self._line.wiretap.encode(request, self._line.peer)

    def _feed(self, requests: Requests[Any] | None) -> Feed[Any]:
        if requests is None:
            raise LocalProtocolError(f"{self._line.method} needs its requests as an iterator")
        return Feed(requests, self._line.wiretap, self._line.peer)


class _UnaryUnary(_Callable[R], grpc.aio.UnaryUnaryMultiCallable[Any, R]):
    def __call__(self, request: Any, **settings: Any) -> UnaryUnary[Any, R]:
        return UnaryUnary(*self._start(self._encoded(request), settings))


class _UnaryStream(_Callable[R], grpc.aio.UnaryStreamMultiCallable[Any, R]):
    def __call__(self, request: Any, **settings: Any) -> UnaryStream[Any, R]:
        return UnaryStream(*self._start(self._encoded(request), settings))


class _StreamUnary(_Callable[R], grpc.aio.StreamUnaryMultiCallable[Any, R]):
    def __call__(  # type: ignore[override]
        self, request_iterator: Requests[Any] | None = None, **settings: Any
    ) -> StreamUnary[Any, R]:
        feed = self._feed(request_iterator)
        return StreamUnary(*self._start(feed.wires(), settings), feed)


class _StreamStream(_Callable[R], grpc.aio.StreamStreamMultiCallable[Any, R]):
    def __call__(  # type: ignore[override]
        self, request_iterator: Requests[Any] | None = None, **settings: Any
    ) -> StreamStream[Any, R]:
        feed = self._feed(request_iterator)
        return StreamStream(*self._start(feed.wires(), settings), feed)


def _required(timeout_s: float | None, line: Line[Any]) -> float:
    if timeout_s is None:
        raise LocalProtocolError(
            f"{line.method} was called without a deadline",
            advice="every call has a timeout; HELD_OPEN says that it may last",
        )
    return timeout_s
