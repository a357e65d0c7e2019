"""How an error crosses the wire: status code, one line, and `vfl-error-bin` with an ErrorDetail."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from common.errors import (
    LONGEST_TEXT,
    ColonnadeError,
    JobCancelled,
    JobError,
    LocalProtocolError,
    PeerError,
    PeerFailed,
    PeerRefused,
    PeerUnreachable,
    Refused,
    RemoteProtocolError,
    UnknownJob,
    foreign_text,
)
from common.rpc.pb.job_pb2 import ErrorDetail

log = logging.getLogger("vfl.rpc")

ERROR_METADATA = "vfl-error-bin"

_STATUS: tuple[tuple[type[ColonnadeError], grpc.StatusCode], ...] = (
    (Refused, grpc.StatusCode.PERMISSION_DENIED),
    (UnknownJob, grpc.StatusCode.NOT_FOUND),
    (RemoteProtocolError, grpc.StatusCode.INVALID_ARGUMENT),
    (LocalProtocolError, grpc.StatusCode.INTERNAL),
    (PeerError, grpc.StatusCode.ABORTED),
    (JobError, grpc.StatusCode.ABORTED),
    (ColonnadeError, grpc.StatusCode.FAILED_PRECONDITION),
)

_AT_THE_CALLER: dict[str, type[ColonnadeError]] = {
    "JobError": JobError,
    "JobCancelled": JobCancelled,
    "UnknownJob": UnknownJob,
    "PeerUnreachable": PeerUnreachable,
    "PeerRefused": PeerRefused,
    "PeerFailed": PeerFailed,
    "Refused": PeerRefused,
    "RemoteProtocolError": PeerRefused,
}
"""What the peer's error is for us. A name that is not here, ours or invented, is a PeerFailed."""

_VERBS = {"Refused": "refused: ", "RemoteProtocolError": "rejected our message: "}

_UNAVAILABLE: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("dns resolution failed", "domain name not found", "name resolution", "getaddrinfo"),
        "its host name cannot be resolved",
        "check the address in the party file and the DNS of this machine",
    ),
    (
        ("hostname verification", "peer name", "not in peer certificate"),
        "the server there shows the certificate of another party",
        "check that the address is that party's, and that its certificate has the party's name",
    ),
    (
        ("wrong_version_number", "wrong version number", "http_request", "unexpected_message"),
        "the server there does not speak TLS",
        "check the address, and that the peer is not in insecure mode",
    ),
    (
        ("certificate has expired", "certificate is not yet valid"),
        "its certificate is not valid today",
        "the peer needs a new one; compare the clocks, too",
    ),
    (
        ("issuer certificate", "self signed", "self-signed", "unknown ca"),
        "its certificate is not of our CA",
        "both sides need certificates of one CA, or each other's CA in their CA files",
    ),
    (
        ("ssl", "tls", "certificate", "handshake"),
        "the TLS handshake failed",
        "both certificates must be valid today and of the same CA; `vfl check` says which one is not",
    ),
    (("connection refused",), "nothing listens at that address", "is the peer's service running there?"),
    (
        ("keepalive", "ping timeout", "watchdog"),
        "the connection fell silent",
        "the peer's machine or the network in between is down",
    ),
    (
        ("timed out", "timeout", "deadline", "unreachable", "no route"),
        "the connection attempt got no answer",
        "a firewall may drop the packets, or the machine is down",
    ),
    (
        ("socket closed", "connection reset", "broken pipe", "eof", "goaway", "end of tcp stream"),
        "the peer closed the connection",
        "its service has stopped, or it does not accept this party's certificate; see the peer's log",
    ),
)
"""Words in gRPC's own description of an UNAVAILABLE, what they mean, and what to do; first match counts."""


_LOOK_INSIDE = "look at the peer's log; here `--debug` shows what the connection itself reported"


class Deadline(float):
    """A number of seconds that knows the setting it came from, so that an error can name it."""

    __slots__ = ("setting",)

    def __new__(cls, seconds: float, setting: str) -> Deadline:
        """Create a deadline of `seconds`, set by, for example, `deadlines.call_s`."""
        deadline = super().__new__(cls, seconds)
        deadline.setting = setting
        return deadline

    setting: str


def status_of(error: ColonnadeError) -> grpc.StatusCode:
    """Return the status code under which an error travels."""
    return next(code for kind, code in _STATUS if isinstance(error, kind))


def detail_of(error: ColonnadeError, party: str) -> ErrorDetail:
    """Return an error as the message that tells the caller about it."""
    return ErrorDetail(
        error=type(error).__name__,
        party=party,
        what=_shortened(error.what),
        where=_shortened(error.where),
        advice=_shortened(error.advice),
    )


def error_of(detail: ErrorDetail, peer: str, address: str) -> ColonnadeError:
    """Return a peer's error as the error that it is for us; control characters are taken out."""
    kind = _AT_THE_CALLER.get(detail.error, PeerFailed)
    verb = _VERBS.get(detail.error, "reports: ")
    where = f"{peer} at {address}"
    told = foreign_text(detail.where)
    return kind(
        f"{peer} {verb}{foreign_text(detail.what)}",
        where=f"{where}, {told}" if told else where,
        advice=foreign_text(detail.advice),
    )


@contextmanager
def peer_errors(peer: str, address: str, method: str = "", timeout_s: float | None = None) -> Iterator[None]:
    """Turn every gRPC error of a block into a typed one that names the peer and its address.

    Args:
        peer: The party that is called.
        address: Where it is called.
        method: The call, for the message.
        timeout_s: The deadline of the call; a `Deadline` also gives its name away.

    Raises:
        ColonnadeError: In place of a grpc.aio.AioRpcError.
    """
    try:
        yield
    except grpc.aio.AioRpcError as exc:
        raise typed_error(exc, peer, address, method, timeout_s) from exc


def typed_error(
    exc: grpc.aio.AioRpcError, peer: str, address: str, method: str = "", timeout_s: float | None = None
) -> ColonnadeError:
    """Return the typed error that a failed call stands for."""
    wire = detail_in(exc)
    if wire is not None:
        with suppress(DecodeError):
            return error_of(ErrorDetail.FromString(wire), peer, address)
    where = f"{peer} at {address}"
    call = method or "the call"
    text = foreign_text(exc.details() or "")
    log.debug("%s at %s: %s: %s %s", peer, address, call, exc.code(), text)
    match exc.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return PeerUnreachable(
                f"{peer} did not answer {call} within {_named(timeout_s)}",
                where=where,
                advice="the peer is slow, stuck, or cut off; look at its log, or raise the deadline",
            )
        case grpc.StatusCode.UNAVAILABLE:
            meaning, advice = _meaning(f"{text} {exc.debug_error_string() or ''}".lower())
            return PeerUnreachable(f"{peer} cannot be reached: {meaning}", where=where, advice=advice)
        case grpc.StatusCode.CANCELLED:
            return PeerUnreachable(
                f"{peer} broke off {call}", where=where, advice="its service may be stopping"
            )
        case grpc.StatusCode.UNIMPLEMENTED:
            return PeerRefused(
                f"{peer} does not offer {call}",
                where=where,
                advice="the peer has another role or another version; `vfl check` says which",
            )
        case grpc.StatusCode.PERMISSION_DENIED | grpc.StatusCode.UNAUTHENTICATED:
            return PeerRefused(f"{peer} refused {call}: {text}", where=where)
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "CLIENT:" in text:
            return RemoteProtocolError(f"{peer} sent a message that is too large", where=where)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return PeerFailed(
                f"{peer} takes no message of that size in {call}", where=where, advice=_LOOK_INSIDE
            )
        case _:
            return PeerFailed(f"{peer} failed in {call}", where=where, advice=_LOOK_INSIDE)


def detail_in(exc: grpc.aio.AioRpcError) -> bytes | None:
    """Return the ErrorDetail that came with a failed call, as it came."""
    metadata: Any = exc.trailing_metadata() or ()
    return next((bytes(value) for key, value in metadata if key == ERROR_METADATA), None)


def _meaning(text: str) -> tuple[str, str]:
    for words, meaning, advice in _UNAVAILABLE:
        if any(word in text for word in words):
            return meaning, advice
    return "there is no connection", "is the peer's service running, and the network in between up?"


def _named(timeout_s: float | None) -> str:
    if timeout_s is None:
        return "its deadline"
    if isinstance(timeout_s, Deadline):
        return f"{timeout_s:g} s ({timeout_s.setting})"
    return f"{timeout_s:g} s"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
