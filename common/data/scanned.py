"""Rows whose columns stay in their file: read once to be checked, and again, batch by batch, when they are
needed. What stays in memory is the ids and the label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from common.data.cells import id_texts
from common.data.columns import CategoryReader, Column, NumericColumn
from common.data.libsvm_source import LibsvmSource
from common.data.numbers import EMPTY, Faults, NumberReader
from common.data.reading import TableRequest, chosen_columns, open_source, read_kept, read_table
from common.data.source import CsvFile, Declared, ParquetFiles, Source
from common.data.table import Table
from common.data.unfit_cells import unfit_cells
from common.errors import DataError
from common.types import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Some rows with some of their columns; may be seen by their owner alone.

    Attributes:
        rows: Their positions in the table, ascending.
        columns: By name.
    """

    rows: Ints = field(repr=False)
    columns: Mapping[str, Column] = field(repr=False)


class Rows(Protocol):
    """A party's rows, wherever their columns are."""

    @property
    def head(self) -> Table:
        """Ids, the label at an active party, and what reading did; no other column need be there."""

    @property
    def features(self) -> tuple[str, ...]:
        """Names of all columns besides id and label."""

    def batches(self, names: Sequence[str]) -> Iterator[Cells]:
        """Yield every row once, in the table's order, with the named columns.

        Raises:
            DataError: The source is broken, is not what it was, or a cell does not fit its column.
        """


def open_rows(declared: Declared, request: TableRequest) -> Rows:
    """Read rows and check every cell; columns of files stay there, those of any other source are held.

    Raises:
        DataError, ConfigError: As `read_table`.
    """
    source = open_source(declared)
    # Only files give the same rows when they are read again.
    if isinstance(declared, CsvFile | ParquetFiles) and not isinstance(source, LibsvmSource):
        return FileRows.scanned(source, request)
    label = () if request.label is None else (request.label.name,)
    return held(read_table(source, request).dense(), label)


def held(table: Table, label: Sequence[str] = ()) -> HeldRows:
    """Return a table in memory as rows; `label` names the columns that are no features."""
    features = tuple(name for name in table.features if name not in label)
    return HeldRows(table.select(label), features, table)


@dataclass(frozen=True, slots=True, eq=False)
class HeldRows:
    """Rows that are in memory.

    Attributes:
        table: With all columns.
    """

    head: Table
    features: tuple[str, ...]
    table: Table = field(repr=False)

    def batches(self, names: Sequence[str]) -> Iterator[Cells]:
        """Yield all rows at once."""
        yield Cells(np.arange(self.head.rows), {name: self.table.cells(name) for name in names})


@dataclass(frozen=True, slots=True, eq=False)
class FileRows:
    """Rows that are read from their file whenever they are needed."""

    head: Table
    features: tuple[str, ...]
    _source: Source = field(repr=False)
    _request: TableRequest = field(repr=False)
    _kept: Ints = field(repr=False)

    @classmethod
    def scanned(cls, source: Source, request: TableRequest) -> FileRows:
        """Read a source once, keep what is to stay in memory, and check the rest."""
        label = None if request.label is None else request.label.name
        features = tuple(name for name in chosen_columns(source, request) if name != label)
        # Which rows are left has to be known first.
        dropping = tuple(name for name in features if request.missing_of(name) == "drop")
        table, kept = read_kept(source, replace(request, features=dropping))
        head = table.select([] if label is None else [label])
        rows = cls(head, features, source, request, kept)
        for _ in rows.batches(features):
            pass
        return rows

    def batches(self, names: Sequence[str]) -> Iterator[Cells]:
        """Yield the rows of a batch of the file at a time."""
        columns = _Columns(self._source, self._request, names)
        rule, begin, done = self._request.id_rule, 0, 0
        for batch in self._source.batches([rule.column, *names]):
            end = done + int(np.searchsorted(self._kept[done:], begin + batch.num_rows))
            here = self._kept[done:end] - begin
            ids = id_texts(batch.column(0), self.head.source)
            if tuple(rule.canonical(ids[at]) for at in here) != self.head.ids[done:end]:
                raise self._changed()
            yield Cells(np.arange(done, end), columns.read(batch, here))
            begin, done = begin + batch.num_rows, end
        # Arrow keeps what its batches took for the next ones, and there are none.
        pa.default_memory_pool().release_unused()
        columns.require_fit()
        if done < len(self._kept):
            raise self._changed()

    def _changed(self) -> DataError:
        return DataError(
            f"{self.head.source} has other rows than a moment ago",
            where=self.head.source,
            advice="leave the file alone while a job runs, and submit the job again",
        )


class _Columns:
    """Reads columns batch by batch and remembers what was wrong with them, not what was in them."""

    def __init__(self, source: Source, request: TableRequest, names: Sequence[str]) -> None:
        self._source, self._request, self._names = source, request, names
        rules = request.preparation
        self._numbers: Mapping[str, NumberReader] = {
            name: NumberReader(rules.missing_values, rules.decimal)
            for name in names
            if request.type_of(name) == "numeric"
        }
        self._faults = {
            name: self._numbers[name].faults if name in self._numbers else Faults() for name in names
        }
        self._rows = 0

    def read(self, batch: pa.RecordBatch, kept: Ints) -> dict[str, Column]:
        """Return the columns of the next batch, whose first one is the id, at the rows that are kept."""
        columns: dict[str, Column] = {}
        for at, name in enumerate(self._names, start=1):
            column = self._column(name, batch.column(at))
            if len(kept) < len(column):
                column = column.take(kept)
            if self._request.missing_of(name) == "error":
                absent = kept[np.flatnonzero(column.missing)]
                self._faults[name].add(EMPTY, (absent + 1 + self._rows).tolist())
            columns[name] = column
        self._rows += batch.num_rows
        return columns

    def require_fit(self) -> None:
        """Refuse cells that are no numbers, and missing ones where that is an error.

        Raises:
            DataError: With columns, rows and counts.
        """
        faults = {name: found for name, found in self._faults.items() if found.total}
        if faults:
            raise unfit_cells(self._source, faults, None)

    def _column(self, name: str, cells: pa.Array) -> Column:
        reader = self._numbers.get(name)
        if reader is None:
            # A reader of its own for each batch: categories of all batches need not be kept.
            categories = CategoryReader(f"{self._source.label}, column {name!r}")
            categories.read(cells)
            return categories.column()
        reader.read(cells)
        return NumericColumn(reader.values())
