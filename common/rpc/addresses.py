"""Network addresses as they stand in configuration files: `host:port`."""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket

from common.errors import ConfigError

_HIGHEST_PORT = 65535
_PORTS = range(20_000, 32_000)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`; an IPv6 host stands in brackets.

    Raises:
        ConfigError: The text is not such an address.
    """
    host, colon, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host.startswith("[") and host.endswith("]")
    port_is_number = port.isascii() and port.isdigit() and int(port) <= _HIGHEST_PORT
    if not colon or not bare or not port_is_number or (":" in bare and not bracketed):
        raise ConfigError(
            f"{address!r} is not an address",
            advice="write host:port, for example 127.0.0.1:7001 or [::1]:7001; port 0 takes any free one",
        )
    return bare, int(port)


def join_address(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """Tell whether nobody but this machine can reach the address."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nobody listens on, for services that must know each other's first.

    They lie below the range from which systems take ports for outgoing connections (Linux: from 32768), so
    that no connection takes one of them before its service does.
    """
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            port = secrets.randbelow(_PORTS.stop - _PORTS.start) + _PORTS.start
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    return found
