"""Ids are text: how a cell becomes an id, and digests that compare two lists of ids."""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

# The digest names what it covers, so that an ordered and a sorted digest of one list never coincide.
_ORDERED = b"colonnade ids, in file order, v1"
_SORTED = b"colonnade ids, sorted, v1"


@dataclass(frozen=True, slots=True)
class IdRule:
    """How a cell of the id column becomes an id; both sides of a job must declare the same rule.

    Attributes:
        column: Header of the id column.
        strip: Whether white space around the id is dropped.
        case: `keep`, or fold every id to `lower` or `upper` case.
        unicode: Unicode normal form, so that two spellings of one letter compare as equal.
    """

    column: str = "id"
    strip: bool = True
    case: Literal["keep", "lower", "upper"] = "keep"
    unicode: Literal["NFC", "NFKC", "none"] = "NFC"

    def canonical(self, cell: str) -> str:
        """Return the id that a cell stands for: never a number, so 001 stays 001."""
        text = cell if self.unicode == "none" else unicodedata.normalize(self.unicode, cell)
        if self.strip:
            text = text.strip()
        if self.case == "lower":
            return text.lower()
        if self.case == "upper":
            return text.upper()
        return text


def ordered_id_digest(ids: Sequence[str], key: bytes) -> bytes:
    """Return HMAC-SHA256 over the ids in their order; equal only for equal lists.

    Whoever holds the key can test a guessed whole list against it, but no single id.
    """
    return _digest(ids, len(ids), key, _ORDERED)


def sorted_id_digest(ids: Sequence[str], key: bytes) -> bytes:
    """Return HMAC-SHA256 over the sorted ids: tells another order from other ids."""
    return _digest(sorted(ids), len(ids), key, _SORTED)


def _digest(ids: Iterable[str], count: int, key: bytes, label: bytes) -> bytes:
    mac = hmac.new(key, digestmod=hashlib.sha256)
    mac.update(_prefixed(label))
    mac.update(count.to_bytes(8, "big"))
    for one in ids:
        mac.update(_prefixed(one.encode("utf-8")))
    return mac.digest()


def _prefixed(data: bytes) -> bytes:
    # The length in front keeps ("ab", "c") apart from ("a", "bc").
    return len(data).to_bytes(8, "big") + data
