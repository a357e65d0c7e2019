"""One line of a ledger: a message that was about to leave, or had just come.

A line is a JSON object in UTF-8. Each names the digest of the line before it, so that whoever changes one has
to change all that follow, and the head as well (book.py).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, Literal, Self

from google.protobuf.descriptor import Descriptor

from common.errors import ColonnadeError
from common.rpc.disclosure import disclosure_of
from common.rpc.pb.disclosure_pb2 import Disclosure

Direction = Literal["sent", "received"]


class LedgerError(ColonnadeError):
    """A ledger cannot be written or read, or is not what was written."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message on its way out or in.

    Attributes:
        number: From 1, without a gap.
        time: UTC, ISO 8601 with microseconds: when it was written down.
        party: Whose ledger this is.
        peer: Who gets or sent it; empty for a caller that has not said who it is.
        job: Empty outside jobs.
        message: Full protobuf name; kind, granularity, protection and key are what its schema declares.
        rows: Rows that the message speaks about.
        values: Numbers, ciphertexts or points in it.
        wire_bytes: Its size, without gRPC's and TLS's framing.
        digest: SHA-256 of its bytes, hexadecimal.
        previous: SHA-256 of the line before.
    """

    number: int
    time: str
    party: str
    direction: Direction
    peer: str
    job: str
    round: int
    attempt: int
    message: str
    kind: str
    granularity: str
    protection: str
    key: str
    rows: int
    values: int
    wire_bytes: int
    digest: str
    previous: str

    def line(self) -> bytes:
        """Return the line, its end included."""
        return _encoded(dict(zip(_NAMES, _values(self), strict=True))).encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """Return the entry in a line.

        Raises:
            ValueError: It is no entry.
        """
        found: Any = json.loads(line)
        if not isinstance(found, dict) or tuple(found) != _NAMES:
            raise ValueError("other keys than an entry's")
        if any(type(found[name]) is not kind for name, kind in _KINDS.items()):
            raise ValueError("a value of another type than an entry's")
        return cls(**found)


_NAMES = tuple(part.name for part in fields(Entry))
_KINDS = {part.name: int if part.type == "int" else str for part in fields(Entry)}
_values = attrgetter(*_NAMES)
_encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@cache
def declared_in(descriptor: Descriptor | Any) -> str:
    """Return the part of a line that a message type's schema says."""
    declared = disclosure_of(descriptor)
    return _inner(
        message=descriptor.full_name,
        kind=Disclosure.Kind.Name(declared.kind).lower(),
        granularity=Disclosure.Granularity.Name(declared.granularity).lower(),
        protection=Disclosure.Protection.Name(declared.protection).lower(),
        key=Disclosure.KeyHolder.Name(declared.key_holder).lower() if declared.key_holder else "",
    )


@lru_cache(4096)
def way_of(party: str, direction: Direction, peer: str, job: str) -> str:
    """Return the part of a line that says between whom a message passed, in which job."""
    return _inner(party=party, direction=direction, peer=peer, job=job)


def _inner(**parts: str) -> str:
    return _encoded(parts)[1:-1]


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of a line or a message, hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def beginning(party: str) -> str:
    """Return what the first entry of a party's ledger names as the digest of the line before it."""
    return digest_of(f"colonnade ledger v1, {party}".encode())
