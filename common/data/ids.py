"""Ids are text: how a cell becomes an id, and in which order ids stand."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from common.errors import RemoteProtocolError
from common.types import Ints

Case: TypeAlias = Literal["keep", "lower", "upper"]
UnicodeForm: TypeAlias = Literal["NFC", "NFKC", "none"]
Duplicates: TypeAlias = Literal["error", "first", "last"]
MissingIds: TypeAlias = Literal["error", "drop"]

_LABEL = b"colonnade ids, in file order, v1"


@dataclass(frozen=True, slots=True)
class IdRule:
    """How a cell of the id column becomes an id; both sides of a job must declare the same rule.

    Attributes:
        column: Header of the id column; each side has its own.
        strip: Whether white space around the id is dropped.
        case: `keep`, or fold every id to `lower` or `upper` case.
        unicode: Unicode normal form, so that two spellings of one letter compare as equal.
        pad_zeros: Width to which an id of digits alone is filled with zeros from the left.
        null_words: Texts that stand for no id, such as NULL; an empty cell always does.
        missing: Whether a row without an id is an error or dropped and counted.
        duplicates: Whether an id that comes again is an error, or which of its rows is kept.
    """

    column: str = "id"
    strip: bool = True
    case: Case = "keep"
    unicode: UnicodeForm = "NFC"
    pad_zeros: int | None = None
    null_words: tuple[str, ...] = ()
    missing: MissingIds = "error"
    duplicates: Duplicates = "error"
    _nulls: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Put the null words into the spelling in which ids are compared."""
        object.__setattr__(self, "_nulls", frozenset(self._folded(word) for word in self.null_words))

    def canonical(self, cell: str) -> str:
        """Return the id that a cell stands for, "" for none: never a number, so 001 stays 001."""
        text = self._folded(cell)
        if text in self._nulls:
            return ""
        if self.pad_zeros and text.isascii() and text.isdigit():
            return text.zfill(self.pad_zeros)
        return text

    def describe(self) -> str:
        """Return the rule as one line of text, the same for the same rule; the column's name is not in it."""
        parts = {
            "strip": self.strip,
            "case": self.case,
            "unicode": self.unicode,
            "pad_zeros": self.pad_zeros,
            "null_words": sorted(self._nulls),
            "duplicates": self.duplicates,
        }
        return json.dumps(parts)

    def _folded(self, cell: str) -> str:
        text = cell if self.unicode == "none" or cell.isascii() else unicodedata.normalize(self.unicode, cell)
        if self.strip:
            text = text.strip()
        if self.case == "keep":
            return text
        text = text.lower() if self.case == "lower" else text.upper()
        # Folding the case may take a letter apart again.
        return text if self.unicode == "none" or text.isascii() else unicodedata.normalize(self.unicode, text)


def rule_differences(ours: str, theirs: str) -> list[str]:
    """Return how two rules differ, both as `IdRule.describe` writes them: `case: "keep" here, "upper" there`.

    Raises:
        RemoteProtocolError: The other side's text is no rule.
    """
    try:
        own, other = json.loads(ours), json.loads(theirs)
    except (ValueError, RecursionError) as failure:
        raise RemoteProtocolError("the other side's id rule is not readable") from failure
    if not isinstance(other, dict):
        raise RemoteProtocolError("the other side's id rule is not readable")
    return [
        f"{key}: {json.dumps(own.get(key))} here, {json.dumps(other.get(key))} there"
        for key in dict.fromkeys([*own, *other])
        if own.get(key) != other.get(key)
    ]


def ids_digest(ids: Sequence[str]) -> bytes:
    """Return a digest of a list of ids in its order; it stays at the party whose ids they are.

    Whoever had it could test guessed lists against it.
    """
    digest = hashlib.sha256(_LABEL)
    for one in ids:
        data = one.encode()
        # The length in front keeps ("ab", "c") apart from ("a", "bc").
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


def ids_without_partner(ids: Sequence[str], common: Ints) -> list[str]:
    """Return the ids that are not in the common rows, in their order."""
    alone = np.ones(len(ids), dtype=np.bool_)
    alone[common] = False
    return [ids[row] for row in np.flatnonzero(alone).tolist()]


def in_id_order(ids: Sequence[str], rows: Ints) -> Ints:
    """Return row numbers in the order of their ids as text (of code points, which is also that of UTF-8)."""
    return np.array(sorted(rows.tolist(), key=ids.__getitem__), dtype=np.int64)
