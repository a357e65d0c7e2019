"""Columns of a party's table: numbers with holes, or categories."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from common.data.cells import category_texts
from common.types import Floats, Ints

Codes: TypeAlias = npt.NDArray[np.int32]

MISSING_CODE = -1

Entry = TypeVar("Entry", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class NumericColumn:
    """Numbers, (n,), NaN where one is missing; may be seen by their owner alone."""

    values: Floats = field(repr=False)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Where a number is missing, (n,)."""
        return np.isnan(self.values)

    def take(self, positions: Ints) -> NumericColumn:
        """Return the rows at these positions."""
        return NumericColumn(frozen(self.values[positions]))

    def content(self) -> bytes:
        """Return the column as bytes that are equal only for equal columns."""
        return np.ascontiguousarray(self.values, dtype="<f8").tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class CategoricalColumn:
    """Categories; may be seen by their owner alone.

    Attributes:
        categories: Distinct texts in sorted order; rows that were taken away may leave some without a row.
        codes: (n,), positions in `categories`, -1 where one is missing.
    """

    categories: tuple[str, ...] = field(repr=False)
    codes: Codes = field(repr=False)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Where a category is missing, (n,)."""
        return np.equal(self.codes, MISSING_CODE)

    def take(self, positions: Ints) -> CategoricalColumn:
        """Return the rows at these positions."""
        return CategoricalColumn(self.categories, frozen(self.codes[positions]))

    def content(self) -> bytes:
        """Return the column as bytes that are equal only for equal columns."""
        names = "".join(f"{len(name)}:{name}" for name in self.categories).encode()
        return names + b"|" + np.ascontiguousarray(self.codes, dtype="<i4").tobytes()

    def texts(self) -> npt.NDArray[np.object_]:
        """Return the categories row by row, (n,), None where one is missing."""
        return np.array([*self.categories, None], dtype=object)[self.codes]


Column: TypeAlias = NumericColumn | CategoricalColumn


class CategoryReader:
    """Reads one categorical column batch by batch; white space around a category is dropped.

    The text `NA` is a category like any other; an empty cell and a null are missing.
    """

    def __init__(self, where: str) -> None:
        """Start an empty column; `where` names it in errors."""
        self._where = where
        self._known: dict[str, int] = {}
        self._parts: list[Codes] = []

    def read(self, cells: pa.Array) -> None:
        """Read the next batch."""
        encoded = category_texts(cells, self._where).dictionary_encode()
        # The last entry is what null, code -1, points at.
        codes = [self._code(name) for name in encoded.dictionary.to_pylist()] + [MISSING_CODE]
        indices = pc.fill_null(encoded.indices, MISSING_CODE).to_numpy(zero_copy_only=False)
        self._parts.append(np.array(codes, dtype=np.int32)[indices])

    def column(self) -> CategoricalColumn:
        """Return what was read, and let go of it."""
        names = sorted(self._known)
        order = np.full(len(names) + 1, MISSING_CODE, dtype=np.int32)
        for position, name in enumerate(names):
            order[self._known[name]] = position
        codes = np.concatenate([np.empty(0, dtype=np.int32), *self._parts])
        self._parts.clear()
        return CategoricalColumn(tuple(names), frozen(order[codes]))

    def _code(self, text: str) -> int:
        # One spelling for letters that can be written in two ways, so that two exports agree.
        name = text.strip() if text.isascii() else unicodedata.normalize("NFC", text).strip()
        return self._known.setdefault(name, len(self._known)) if name else MISSING_CODE


def frozen(values: npt.NDArray[Entry]) -> npt.NDArray[Entry]:
    """Make an array that nobody else holds read-only, and return it."""
    values.flags.writeable = False
    return values
