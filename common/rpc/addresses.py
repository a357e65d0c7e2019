"""Network addresses as they stand in configuration files: `host:port`."""

from __future__ import annotations

import ipaddress

from common.errors import ConfigError

_HIGHEST_PORT = 65535


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
