"""Text cells become numbers, or a count of what is wrong with them; a cell's text is never reported."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from common.data.csv_text import SHOWN_CASES
from common.types import Floats

Fault: TypeAlias = Literal[
    "empty",
    "a marker for a missing value, such as NA",
    "infinite or too large",
    "a number with a decimal comma",
    "a number with thousands separators",
    "text, not a number",
]

# Compared in lower case.
_MISSING = frozenset(
    {"", "na", "n/a", "#n/a", "#na", "<na>", "nan", "nat", "null", "#null!", "none", "nil", "\\n"}
    | {"missing", "unknown", "undefined", "void", "?", "-", "--", "."}
)
_PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+([eE][+-]?[0-9]+)?")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}([,.' \u00a0\u202f][0-9]{3})+([.,][0-9]+)?")


@dataclass(frozen=True, slots=True)
class Faults:
    """What is wrong in one column.

    Attributes:
        counts: Number of cells by fault.
        first: The first few data rows (from 1) of each fault.
    """

    counts: Mapping[Fault, int]
    first: Mapping[Fault, list[int]]

    @property
    def total(self) -> int:
        """Number of cells that are not numbers."""
        return sum(self.counts.values())


def parse_numbers(cells: pa.ChunkedArray) -> Floats | Faults:
    """Return the column as float64, or what is wrong with it.

    A number is decimal, with a point and perhaps an exponent; white space around it is ignored.
    """
    trimmed = pa.compute.utf8_trim_whitespace(cells)
    try:
        values = pa.compute.cast(trimmed, pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return _parse_each(trimmed)
    if np.isfinite(values).all():
        return np.asarray(values, dtype=np.float64)
    return _parse_each(trimmed)


def _parse_each(trimmed: pa.ChunkedArray) -> Floats | Faults:
    values = np.empty(len(trimmed), dtype=np.float64)
    counts: dict[Fault, int] = {}
    first: dict[Fault, list[int]] = {}
    for position, cell in enumerate(trimmed.to_pylist()):
        fault = _fault(cell)
        if fault is None:
            values[position] = float(cell)
            continue
        counts[fault] = counts.get(fault, 0) + 1
        if counts[fault] <= SHOWN_CASES:
            first.setdefault(fault, []).append(position + 1)
    return Faults(counts, first) if counts else values


def _fault(cell: str) -> Fault | None:
    if _PLAIN.fullmatch(cell):
        return None if math.isfinite(float(cell)) else "infinite or too large"
    if not cell:
        return "empty"
    if cell.lower() in _MISSING:
        return "a marker for a missing value, such as NA"
    if _INFINITE.fullmatch(cell):
        return "infinite or too large"
    if _THOUSANDS.fullmatch(cell):
        return "a number with thousands separators"
    if _DECIMAL_COMMA.fullmatch(cell):
        return "a number with a decimal comma"
    return "text, not a number"
