"""A party's own rows: ids and columns, read once and checked once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from common.data.columns import Column, NumericColumn, frozen
from common.data.preparation import Preparation
from common.data.sparse_columns import SparseColumns
from common.data.wording import counted, no_such_columns
from common.errors import DataError
from common.types import Floats, Ints


@dataclass(frozen=True, slots=True)
class Intake:
    """What reading did to the rows: counts in are counts out.

    Attributes:
        read: Rows in the source.
        dropped: Rows left out, by reason; each row under one reason.
        notes: What was detected rather than declared.
    """

    read: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """Return notes for a report."""
        if not self.dropped:
            return [*self.notes]
        kept = self.read - sum(self.dropped.values())
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())
        return [*self.notes, f"{counted(self.read, 'row')} read, {kept:,} kept; left out: {reasons}"]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of one dataset; every id is unique.

    Attributes:
        name: The dataset's name in the party file.
        source: Where it came from, for messages.
        ids: n ids in the source's order; may be seen by their owner alone.
        features: d column names, the order of `columns`.
        columns: d columns of n rows.
        preparation: What the party declared about the columns.
        intake: What reading did to the rows.
        sparse: Further columns that most rows lack, not among `features`; None where a source has no such.
    """

    name: str
    source: str
    ids: tuple[str, ...] = field(repr=False)
    features: tuple[str, ...]
    columns: tuple[Column, ...] = field(repr=False)
    preparation: Preparation = field(default_factory=Preparation)
    intake: Intake = field(default_factory=Intake)
    sparse: SparseColumns | None = field(default=None, repr=False)

    @property
    def rows(self) -> int:
        """Number of rows n."""
        return len(self.ids)

    @property
    def width(self) -> int:
        """Number of all columns, the sparse ones included."""
        return len(self.features) + (0 if self.sparse is None else len(self.sparse.numbers))

    def dense(self) -> Table:
        """Return the table with its sparse columns written out, for algorithms that need every number.

        Raises:
            DataError: They would fill more than a gibibyte.
        """
        if self.sparse is None:
            return self
        columns = (*self.columns, *self.sparse.dense(self.source))
        return replace(self, features=(*self.features, *self.sparse.names), columns=columns, sparse=None)

    @property
    def values(self) -> Floats:
        """All columns side by side, (n, d), read-only; only for a table of numbers."""
        if not self.features:
            return np.empty((self.rows, 0))
        return frozen(np.column_stack([self.column(name) for name in self.features]))

    def cells(self, name: str) -> Column:
        """Return one column as it was read."""
        return self.columns[self._position(name)]

    def column(self, name: str) -> Floats:
        """Return one numeric column, (n,), NaN where a value is missing.

        Raises:
            DataError: There is no such column, or it holds categories.
        """
        column = self.cells(name)
        if not isinstance(column, NumericColumn):
            raise DataError(f"column {name!r} holds categories, not numbers", where=self.source)
        return column.values

    def select(self, names: Sequence[str]) -> Table:
        """Return the table with these columns only, in this order; sparse ones stay."""
        return replace(self, features=tuple(names), columns=tuple(self.cells(name) for name in names))

    def without(self, name: str) -> Table:
        """Return the table without one column, such as the label."""
        self._position(name)
        return self.select([feature for feature in self.features if feature != name])

    def take(self, positions: Ints) -> Table:
        """Return the rows at these positions (from 0), in this order."""
        ids = tuple(self.ids[position] for position in positions)
        columns = tuple(column.take(positions) for column in self.columns)
        sparse = None if self.sparse is None else self.sparse.take(positions)
        return replace(self, ids=ids, columns=columns, sparse=sparse)

    def digest(self) -> bytes:
        """Return SHA-256 over ids, column names and cells; may be seen by their owner alone."""
        sha = hashlib.sha256(b"colonnade table v1")
        texts = (str(self.rows), str(len(self.features)), *self.features, *self.ids)
        for data in (text.encode() for text in texts):
            sha.update(len(data).to_bytes(8, "big") + data)
        for column in self.columns:
            data = column.content()
            sha.update(type(column).__name__.encode() + len(data).to_bytes(8, "big") + data)
        if self.sparse is not None:
            sha.update(b"sparse" + self.sparse.content())
        return sha.digest()

    def _position(self, name: str) -> int:
        if name not in self.features:
            raise no_such_columns(self.source, [name], self.features)
        return self.features.index(name)
