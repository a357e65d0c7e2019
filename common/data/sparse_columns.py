"""Numeric columns of which a row has few: compressed rows, with memory for the non-zero values alone.

A job that trains by stochastic updates takes them as they are: `Table.sparse` → `Preprocessing.apply_sparse`
→ `SparseRows` of common/glm. Every other job takes `Table.dense()`, which refuses what is too wide for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from common.data.columns import NumericColumn, frozen
from common.data.wording import SHOWN_CASES, counted, no_such_columns
from common.errors import DataError
from common.types import Floats, Ints

# Numbers that sparse columns may become when a job needs them dense: 1 GiB.
DENSE_CELLS = 1 << 27


@dataclass(frozen=True, slots=True, eq=False)
class SparseColumns:
    """Columns under the numbers that their file gives them; may be seen by their owner alone.

    Attributes:
        numbers: (d,), ascending; only columns that some row has, so that d is not the largest number.
        matrix: scipy.sparse.csr_array, (n, d), without stored zeros, each row in the order of its columns.
    """

    numbers: Ints = field(repr=False)
    matrix: Any = field(repr=False)

    @classmethod
    def of(cls, matrix: Any) -> SparseColumns:
        """Take compressed rows whose column positions are the numbers; what is zero is dropped."""
        matrix.eliminate_zeros()
        numbers, positions = np.unique(matrix.indices, return_inverse=True)
        compact = csr_array((matrix.data, positions, matrix.indptr), shape=(matrix.shape[0], len(numbers)))
        return cls(frozen(numbers.astype(np.int64)), compact)

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def names(self) -> tuple[str, ...]:
        """The numbers as text: what messages, models and reports call the columns."""
        return tuple(map(str, self.numbers.tolist()))

    def take(self, positions: Ints) -> SparseColumns:
        """Return the rows at these positions."""
        return SparseColumns(self.numbers, self.matrix[positions])

    def select(self, numbers: Ints) -> SparseColumns:
        """Return the columns with these ascending numbers; one that no row has is a column of zeros."""
        places = np.searchsorted(numbers, self.numbers)
        known = places < len(numbers)
        known[known] = numbers[places[known]] == self.numbers[known]
        places[~known] = -1
        entries = places[self.matrix.indices]
        kept = entries >= 0
        ends = np.concatenate([[0], np.cumsum(kept)])[self.matrix.indptr]
        shape = (len(self), len(numbers))
        return SparseColumns(numbers, csr_array((self.matrix.data[kept], entries[kept], ends), shape=shape))

    def named(self, names: Sequence[str], label: str) -> SparseColumns:
        """Return the columns that a list of names asks for.

        Raises:
            DataError: A name is no column number, or no row has that column.
        """
        present = dict(zip(self.names, self.numbers.tolist(), strict=True))
        absent = [name for name in names if name not in present]
        if absent:
            raise no_such_columns(label, absent, self.names)
        return self.select(np.array(sorted({present[name] for name in names}), dtype=np.int64))

    def dense(self, label: str) -> tuple[NumericColumn, ...]:
        """Return one full column each.

        Raises:
            DataError: They would fill more than a gibibyte.
        """
        rows, columns = self.matrix.shape
        if rows * columns > DENSE_CELLS:
            raise DataError(
                f"{label} has {counted(rows, 'row')} of {columns:,} sparse columns, "
                "too many for an algorithm that needs every number of them",
                where=label,
                advice="use algorithm: vfb2, which keeps them sparse, or list fewer columns under features",
            )
        full: Floats = self.matrix.toarray(order="F")
        return tuple(NumericColumn(frozen(full[:, at].copy())) for at in range(columns))

    def content(self) -> bytes:
        """Return the columns as bytes that are equal only for equal columns."""
        parts = ((self.numbers, "<i8"), (self.matrix.indptr, "<i8"), (self.matrix.indices, "<i8"))
        whole = b"".join(np.ascontiguousarray(array, dtype=kind).tobytes() for array, kind in parts)
        return whole + np.ascontiguousarray(self.matrix.data, dtype="<f8").tobytes()


def first_few(names: Sequence[str]) -> str:
    """Return "3 columns: 1, 2, 7", with the first names when there are many."""
    more = ", …" if len(names) > SHOWN_CASES else ""
    return f"{counted(len(names), 'column')}: {', '.join(names[:SHOWN_CASES])}{more}"
