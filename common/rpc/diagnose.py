"""Why a peer cannot be reached, step by step: name, port, TLS, certificate, greeting, clocks.

gRPC says "unavailable" for all of them. Here each step is tried by itself, with the standard library's
own sockets where gRPC does not let one see what happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from cryptography import x509

from common.errors import ColonnadeError, ConfigError
from common.rpc.addresses import split_address
from common.rpc.channels import open_channel
from common.rpc.greeting import check_greeting, greet, make_greeting
from common.rpc.tls import Security, TlsFiles, party_of
from common.rpc.wiretap import Tap, Wiretap
from common.types import Role

CLOCK_SKEW_S = 60.0
"""Clocks that differ by more make logs hard to compare and new certificates look not yet valid."""

_ALERT_WAIT_S = 1.0
"""In TLS 1.3 a server judges our certificate after the handshake; its alert needs a round trip."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    name: str
    ok: bool
    detail: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """What is checked.

    Attributes:
        peer: The party that should be there.
        address: `host:port`.
        own: This party.
        own_role: Its role.
        security: Its certificates.
        peer_role: The role that the peer should have; None where it is not known.
        taps: Shown the greeting and its answer.
        timeout_s: For each step.
    """

    peer: str
    address: str
    own: str
    own_role: Role
    security: Security
    peer_role: Role | None = None
    taps: Sequence[Tap] = ()
    timeout_s: float = 5.0


async def diagnose(route: Route) -> list[Finding]:
    """Check a peer and return one finding a step; the steps after a failed one are not tried."""
    steps: list[Callable[[Route], Awaitable[list[Finding]]]] = [_name, _port, _greeting]
    if route.security.tls is not None:
        steps.insert(2, _tls)
    findings: list[Finding] = []
    for step in steps:
        findings += await step(route)
        if not all(finding.ok for finding in findings):
            break
    return findings


async def _name(route: Route) -> list[Finding]:
    host, port = split_address(route.address)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(route.timeout_s):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError) as exc:
        advice = "check the host name in the party file and the DNS (or hosts file) of this machine"
        return [Finding("name", False, f"{host} cannot be resolved: {_reason(exc)}", advice)]
    return [Finding("name", True, f"{host} is {', '.join(sorted({str(entry[4][0]) for entry in found}))}")]


async def _port(route: Route) -> list[Finding]:
    try:
        async with _connected(route, None):
            return [Finding("port", True, f"{route.address} accepts connections")]
    except TimeoutError:
        detail = f"{route.address} does not answer within {route.timeout_s:g} s"
        return [Finding("port", False, detail, "a firewall may drop the packets, or the machine is down")]
    except OSError as exc:
        if exc.errno == errno.ECONNREFUSED:
            detail, advice = (
                f"nothing listens at {route.address}",
                "start the peer's service, or correct the port",
            )
        else:
            detail, advice = f"{route.address}: {_reason(exc)}", "check the network between the two machines"
        return [Finding("port", False, detail, advice)]


async def _tls(route: Route) -> list[Finding]:
    try:
        context = _context(_files(route))
        async with _connected(route, context) as (reader, writer):
            certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            await _await_alert(reader)
    except ConfigError as exc:
        return [Finding("tls", False, f"{exc.what} ({exc.where})", exc.advice)]
    except (ssl.SSLError, ConnectionError, TimeoutError, asyncio.IncompleteReadError) as exc:
        return [Finding("tls", False, *_tls_trouble(exc, route.peer))]
    return [
        Finding("tls", True, "both sides accept the other's certificate"),
        _certificate(route, x509.load_der_x509_certificate(certificate)),
    ]


def _certificate(route: Route, certificate: x509.Certificate) -> Finding:
    try:
        name = party_of(certificate, route.address)
    except ConfigError as exc:
        return Finding("certificate", False, exc.what, exc.advice)
    if name != route.peer:
        advice = f"is {route.address} really the address of {route.peer}?"
        return Finding("certificate", False, f"the server there is {name}, not {route.peer}", advice)
    last = certificate.not_valid_after_utc
    return Finding(
        "certificate", True, f"the server is {name}; its certificate is valid until {last:%Y-%m-%d}"
    )


async def _greeting(route: Route) -> list[Finding]:
    try:
        channel = open_channel(route.peer, route.address, route.own, route.security, Wiretap(route.taps))
        async with channel:
            asked = time.time()
            answer = await greet(channel, make_greeting(route.own, route.own_role), route.timeout_s)
            middle = (asked + time.time()) / 2
        check_greeting(answer, route.peer, route.peer_role, route.address)
    except ColonnadeError as exc:
        return [Finding("greeting", False, exc.what, exc.advice)]
    detail = f"{answer.party} ({answer.role}) runs version {answer.package_version}"
    return [Finding("greeting", True, detail), _clock(route.peer, answer.unix_time_s - middle)]


def _clock(peer: str, skew_s: float) -> Finding:
    ahead = "ahead of" if skew_s > 0 else "behind"
    detail = f"the clock of {peer} is {abs(skew_s):.1f} s {ahead} ours"
    if abs(skew_s) <= CLOCK_SKEW_S:
        return Finding("clock", True, detail)
    return Finding("clock", False, detail, "set both clocks by NTP; certificates depend on them")


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # The name is compared by _certificate, which can say whose it is.
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(files.ca)
        context.load_cert_chain(files.cert, files.key)
    except (OSError, ssl.SSLError) as exc:
        raise ConfigError(
            f"our own certificate files cannot be used: {_reason(exc)}", where=str(files.cert)
        ) from exc
    return context


def _files(route: Route) -> TlsFiles:
    route.security.verify(route.own, route.address)
    if route.security.tls is None:
        raise ConfigError("no certificates are configured", where=route.address)
    return route.security.tls


async def _await_alert(reader: asyncio.StreamReader) -> None:
    """Wait for the server's first bytes: its HTTP/2 settings when it accepts us, an alert otherwise."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ALERT_WAIT_S):
            await reader.readexactly(1)


def _tls_trouble(exc: Exception, peer: str) -> tuple[str, str]:
    """Return what went wrong in a handshake and what to do about it."""
    text = _reason(exc).lower()
    if isinstance(exc, ssl.SSLCertVerificationError):
        reason = exc.verify_message
        return f"we do not accept the certificate of {peer}: {reason}", "it must be valid now and of our CA"
    for words, detail, advice in _ALERTS:
        if any(word in text for word in words):
            return detail.format(peer=peer), advice
    if isinstance(exc, ssl.SSLError):
        return f"the handshake with {peer} failed: {_reason(exc)}", "see the log of the peer"
    return (
        f"{peer} closed the connection during the handshake",
        "it does not accept our certificate (another CA, or expired), or it does not speak TLS; see its log",
    )


_ALERTS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("unknown_ca", "unknown ca"),
        "{peer} does not know the CA of our certificate",
        "both sides need certificates of one CA, or each other's CA in their CA files",
    ),
    (("expired",), "{peer} says that our certificate has expired", "issue a new one; compare the clocks"),
    (("certificate_required", "certificate required"), "{peer} demands a certificate", "configure one"),
    (("bad certificate", "bad_certificate"), "{peer} does not accept our certificate", "see its log"),
    (
        ("wrong_version_number", "wrong version number", "record layer", "http_request"),
        "the server at the address of {peer} does not speak TLS",
        "check the address, and that the peer is not in insecure mode",
    ),
)


def _reason(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLError):
        return exc.reason or str(exc)
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return str(exc) or type(exc).__name__


@contextlib.asynccontextmanager
async def _connected(
    route: Route, context: ssl.SSLContext | None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = split_address(route.address)
    name = route.peer if context else None
    async with asyncio.timeout(route.timeout_s):
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    try:
        yield reader, writer
    finally:
        # A polite end would wait half a minute for the server's goodbye: gRPC gives none to a client that
        # has not spoken HTTP/2.
        writer.transport.abort()
