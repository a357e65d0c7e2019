"""The three things a column can become, fitted on training rows and kept as plain JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from common.data.columns import CategoricalColumn, Codes, Column, NumericColumn
from common.errors import DataError
from common.types import Floats

# Index 0 of every embedded field.
MISSING_INDEX = 0
# Beyond this many standard deviations a number is an outlier whose size says nothing more.
_MOST_DEVIATIONS = 10.0
Singles: TypeAlias = npt.NDArray[np.float32]


def bucket(name: str, text: str, buckets: int) -> int:
    """Return the index of a category in its field's part of the table, in [1, buckets)."""
    digest = hashlib.blake2b(name.encode() + b"\0" + text.encode(), digest_size=8).digest()
    return 1 + int.from_bytes(digest, "big") % (buckets - 1)


@dataclass(frozen=True, slots=True)
class HashedField:
    """Categories, hashed into an embedding table of their own.

    Attributes:
        name: The column's name.
        buckets: Rows of its table, at least 2; row 0 is the missing value.
        separator: Between the values of one cell; "" for one value a cell.
        values: Index columns: the most values of a cell that count; the first ones do.
    """

    name: str
    buckets: int
    separator: str = ""
    values: int = 1

    def apply(self, column: Column) -> Codes:
        """Return the column's indices, (n, values), −1 where there is no further value.

        Raises:
            DataError: The column holds numbers.
        """
        if not isinstance(column, CategoricalColumn):
            raise DataError(f"column {self.name!r} was categorical in training and holds numbers now")
        # Only categories of these rows: a single row of a large table must not cost the table's vocabulary.
        used, places = np.unique(column.codes, return_inverse=True)
        table = np.full((len(used), self.values), -1, dtype=np.int32)
        for at, code in enumerate(used.tolist()):
            parts = self.parts(column.categories[code]) if code >= 0 else []
            table[at, : len(parts)] = [bucket(self.name, part, self.buckets) for part in parts]
            if not parts:
                table[at, 0] = MISSING_INDEX
        return table[places]

    def parts(self, text: str) -> list[str]:
        """Return the distinct values of a cell that count, in the cell's order."""
        if not self.separator:
            return [text]
        parts = dict.fromkeys(part.strip() for part in text.split(self.separator))
        return [part for part in parts if part][: self.values]

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "name": self.name,
            "type": "hashed",
            "buckets": self.buckets,
            "separator": self.separator,
            "values": self.values,
        }


@dataclass(frozen=True, slots=True)
class BinnedField:
    """Numbers in bins, each with an embedding; row 0 of its table is the missing value.

    Attributes:
        name: The column's name.
        edges: Ascending; a number at an edge belongs below it. May be seen by the owner alone.
    """

    name: str
    edges: tuple[float, ...] = field(repr=False)

    @property
    def buckets(self) -> int:
        """Rows of its table."""
        return len(self.edges) + 2

    def apply(self, column: Column) -> Codes:
        """Return the column's indices, (n, 1)."""
        values = _numbers(self.name, column)
        bins = 1 + np.searchsorted(np.asarray(self.edges), values, side="left")
        return np.where(np.isnan(values), MISSING_INDEX, bins).astype(np.int32)[:, np.newaxis]

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values; numbers survive exactly."""
        return {"name": self.name, "type": "binned", "edges": list(self.edges)}


@dataclass(frozen=True, slots=True)
class ScaledField:
    """A number as (x − shift) / scale, and 0 where it is missing.

    Attributes:
        name: The column's name.
        shift: May be seen by the owner alone, as everything learnt.
        scale: Above 0.
        flag: Whether a second column says where it is missing: only if that came in training, else its
            weights would never be trained.
    """

    name: str
    shift: float = field(repr=False)
    scale: float = field(repr=False)
    flag: bool

    @property
    def outputs(self) -> int:
        """Number of columns."""
        return 2 if self.flag else 1

    def apply(self, column: Column) -> Singles:
        """Return the column's numbers, (n, outputs), finite."""
        values = _numbers(self.name, column)
        missing = np.isnan(values)
        with np.errstate(over="ignore"):
            scaled = np.clip((values - self.shift) / self.scale, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)
        columns = [np.where(missing, 0.0, scaled), missing][: self.outputs]
        return np.column_stack(columns).astype(np.float32)

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values; numbers survive exactly."""
        return {
            "name": self.name,
            "type": "scaled",
            "shift": self.shift,
            "scale": self.scale,
            "flag": self.flag,
        }


FittedField: TypeAlias = HashedField | BinnedField | ScaledField


def fitted_field(document: Mapping[str, object]) -> FittedField:
    """Return what `to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: The document is something else.
    """
    name, kind = document["name"], document["type"]
    if not isinstance(name, str):
        raise TypeError("a field's name is a text")
    if kind == "hashed":
        separator = document["separator"]
        buckets, values = _whole(document["buckets"]), _whole(document["values"])
        if not isinstance(separator, str) or buckets < 2 or values < 1:
            raise ValueError("no such hashed field")
        return HashedField(name, buckets, separator, values)
    if kind == "binned":
        listed = document["edges"]
        if not isinstance(listed, list):
            raise TypeError("edges are a list")
        edges = tuple(_finite(edge) for edge in listed)
        if any(low >= high for low, high in pairwise(edges)):
            raise ValueError("edges must ascend")
        return BinnedField(name, edges)
    if kind == "scaled" and isinstance(flag := document["flag"], bool):
        scale = _finite(document["scale"])
        if scale <= 0:
            raise ValueError("a scale is above 0")
        return ScaledField(name, _finite(document["shift"]), scale, flag)
    raise ValueError("no such field")


def _numbers(name: str, column: Column) -> Floats:
    if not isinstance(column, NumericColumn):
        raise DataError(f"column {name!r} was numeric in training and holds categories now")
    return column.values


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("a count is a whole number")
    return value


def _finite(value: object) -> float:
    if not isinstance(value, float | int) or isinstance(value, bool) or not np.isfinite(value):
        raise TypeError("a number is finite")
    return float(value)
