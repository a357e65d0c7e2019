"""Cells become numbers, or a count of what is wrong with them; a cell's text is never reported."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.data.cells import is_empty, is_text, plain
from common.data.wording import SHOWN_CASES
from common.types import Floats

Decimal: TypeAlias = Literal[".", ","]

EMPTY = "empty"
INFINITE = "infinite or too large"
TEXT = "text, not a number"
MARKER_SUFFIX = " for a missing value"
# By the decimal mark that was found where the other one is declared.
OTHER_DECIMAL = {",": "a number with a decimal comma", ".": "a number with a decimal point"}
# Compared in lower case. A message may name one of these, since it then names our list, not the cell.
MARKERS = frozenset(
    {"na", "n/a", "#n/a", "#na", "<na>", "nan", "nat", "null", "#null!", "none", "nil", "\\n"}
    | {"missing", "unknown", "undefined", "void", "?", "-", "--", "."}
)
_PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_OTHER_MARK = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}([,.' \u00a0\u202f][0-9]{3})+([.,][0-9]+)?")
_SWAPPED = str.maketrans(",.", ".,")
_UNIT = re.compile(r"[+-]?[0-9.,]+\s?(%|[€$£]|[A-Za-z]{1,3})|[€$£]\s?[+-]?[0-9.,]+")


@dataclass(slots=True)
class Faults:
    """What is wrong in one column.

    Attributes:
        counts: Number of cells by fault.
        first: The first few data rows (from 1) of each fault.
    """

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, list[int]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Number of cells that are not numbers."""
        return sum(self.counts.values())

    def note(self, fault: str, row: int, count: int = 1) -> None:
        """Count a fault; the row is kept when it is among the first."""
        self.counts[fault] = self.counts.get(fault, 0) + count
        rows = self.first.setdefault(fault, [])
        if len(rows) < SHOWN_CASES:
            rows.append(row)

    def add(self, fault: str, rows: Sequence[int]) -> None:
        """Count a fault in several rows."""
        for row in rows:
            self.note(fault, row)


class NumberReader:
    """Reads one numeric column batch by batch.

    A number is decimal, with a point (or the declared decimal comma) and perhaps an exponent; white space
    around it is ignored. A missing cell becomes NaN.
    """

    def __init__(self, missing_values: Collection[str] = ("",), decimal: Decimal = ".") -> None:
        """Take the markers of a missing value, compared in any case of letters; a null always is one."""
        self.faults = Faults()
        self._markers = frozenset(marker.strip().lower() for marker in missing_values)
        self._decimal: Decimal = decimal
        self._parts: list[Floats] = []
        self._rows = 0

    def read(self, cells: pa.Array) -> None:
        """Read the next batch."""
        cells = plain(cells)
        part = self._texts(cells) if is_text(cells.type) else self._typed(cells)
        self._parts.append(part)
        self._rows += len(part)

    def values(self) -> Floats:
        """Return the column, (n,), NaN where a cell is missing, infinite where it is faulty; let go of it."""
        values = np.concatenate([np.empty(0), *self._parts])
        self._parts.clear()
        return values

    def _typed(self, cells: pa.Array) -> Floats:
        kind = cells.type
        if is_empty(kind):
            return np.full(len(cells), np.nan)
        numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if not (numeric or pa.types.is_boolean(kind) or pa.types.is_decimal(kind)):
            self.faults.note(f"of type {kind}, not a number", self._rows + 1, len(cells))
            return np.full(len(cells), np.inf)
        if pa.types.is_boolean(kind):
            cells = cells.cast(pa.uint8())
        values = np.asarray(
            pc.cast(cells, pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64
        )
        for row in np.flatnonzero(np.isinf(values)).tolist():
            self.faults.note(INFINITE, self._rows + row + 1)
        return values

    def _texts(self, cells: pa.Array) -> Floats:
        trimmed = pc.utf8_trim_whitespace(cells.cast(pa.string()))
        quick = self._quick(trimmed)
        if quick is not None:
            return quick
        return np.fromiter(
            (self._one(cell, row) for row, cell in self._numbered(trimmed)), np.float64, len(trimmed)
        )

    def _numbered(self, cells: pa.Array) -> Iterator[tuple[int, str | None]]:
        yield from enumerate(cells.to_pylist(), start=self._rows + 1)

    def _quick(self, trimmed: pa.Array) -> Floats | None:
        """Return a batch of plain numbers and declared markers; None when each cell has to be looked at."""
        if self._decimal == ",":
            return None
        known = pc.is_in(pc.utf8_lower(trimmed), pa.array(sorted(self._markers), pa.string()))
        cells = pc.if_else(known, pa.scalar(None, pa.string()), trimmed)
        try:
            numbers = pc.cast(cells, pa.float64())
        except pa.ArrowInvalid:
            return None
        values = np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)
        # "nan" and "inf" are numbers to Arrow, but markers and faults here.
        usual = np.isinf(values).sum() == 0 and np.isnan(values).sum() == cells.null_count
        return values if usual else None

    def _one(self, cell: str | None, row: int) -> float:
        if cell is None or cell.lower() in self._markers:
            return math.nan
        text = cell.translate(_SWAPPED) if self._decimal == "," else cell
        if _PLAIN.fullmatch(text):
            number = float(text)
            if math.isfinite(number):
                return number
        self.faults.note(self._fault(cell, text), row)
        return math.inf

    def _fault(self, cell: str, text: str) -> str:
        if not cell:
            return EMPTY
        if cell.lower() in MARKERS:
            return f"{cell.lower()!r}{MARKER_SUFFIX}"
        if _INFINITE.fullmatch(text) or _PLAIN.fullmatch(text):
            return INFINITE
        if _THOUSANDS.fullmatch(text):
            return "a number with thousands separators"
        if _OTHER_MARK.fullmatch(text):
            return OTHER_DECIMAL["," if self._decimal == "." else "."]
        return "a number with a unit" if _UNIT.fullmatch(cell) else TEXT
