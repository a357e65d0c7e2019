"""Who is calling.

A party is the common name of its TLS certificate, provided that the certificate also carries it as a DNS
name. Both, because gRPC's clients compare a server with the DNS names only (`ssl_target_name_override`
is the party's name, wherever the server lives; it compares plain strings, so `party_a` with its
underscore is as good as any), and a certificate may hold host names too: among several DNS names, the
common name says which one is the party. The CA therefore must not put one party's name among another's
host names; `certs.issue` refuses to.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import grpc.aio

from common.errors import Refused

PARTY_METADATA = "vfl-party"
"""Where a caller without TLS (loopback only) says who it is."""

Context = grpc.aio.ServicerContext[Any, Any]


def caller(context: Context) -> str:
    """Return the name of the calling party.

    Raises:
        Refused: The connection does not say who is calling.
    """
    transport = context.auth_context()
    if b"ssl" in transport.get("transport_security_type", ()):
        names = _texts(transport.get("x509_common_name", ()))
        alternatives = _texts(transport.get("x509_subject_alternative_name", ()))
        named = [name for name in names if name in alternatives]
    else:
        # Only a server in insecure mode has such connections, and it listens on loopback only.
        metadata = context.invocation_metadata() or ()
        named = [str(value) for key, value in metadata if key == PARTY_METADATA and value]
    if len(named) != 1:
        raise Refused(
            "the caller does not say which party it is",
            advice="a certificate's common name must be the party's name and be among its DNS names",
        )
    return named[0]


def require_caller(context: Context, allowed: Collection[str]) -> str:
    """Return the name of the calling party, if it is one of the allowed ones.

    Raises:
        Refused: It is another party, or the connection does not say who is calling.
    """
    party = caller(context)
    if party not in allowed:
        raise Refused(
            f"{party} may not make this call here",
            advice="only parties that the receiver lists as peers, in the role that the job gives them, may",
        )
    return party


def _texts(values: Any) -> list[str]:
    return [value.decode("utf-8", "replace") for value in values]
