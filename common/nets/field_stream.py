"""Fields of a source that is larger than memory: learnt from a random sample, encoded batch by batch into
files.

    sample = sample_rows(source, request, 200_000, seed)
    plan = FieldPlan.fit(sample, settings)
    rows = encode_source(source, request, plan, folder)      # memory-mapped; row i is the source's row i

A network takes the result as it takes any encoded rows: a batch copies its own rows into memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from common.data.columns import CategoryReader, Column, NumericColumn
from common.data.numbers import EMPTY, Faults, NumberReader
from common.data.reading import TableRequest, chosen_columns
from common.data.source import Source
from common.data.table import Table
from common.data.unfit_cells import unfit_cells
from common.errors import ConfigError
from common.nets.encoded import EncodedRows
from common.nets.fields import FieldPlan

_INDICES, _NUMBERS = "indices.i4", "numbers.f4"


def sample_rows(source: Source, request: TableRequest, rows: int, seed: int) -> Table:
    """Return a uniform random sample of a source's rows, without ids and label; the same for the same seed.

    Raises:
        DataError: The source is broken, or has no such column.
        ConfigError: A column declares that rows without a value are dropped.
    """
    names = _features(source, request)
    draws = np.random.Philox(key=np.array([seed, 0], dtype=np.uint64))
    keys, kept = np.empty(0, dtype=np.uint64), list[pa.RecordBatch]()
    for batch in source.batches(names):
        drawn = np.concatenate([keys, np.asarray(draws.random_raw(batch.num_rows), dtype=np.uint64)])
        whole = pa.Table.from_batches([*kept, batch]).combine_chunks()
        chosen = np.sort(np.argsort(drawn, kind="stable")[:rows])
        keys, kept = drawn[chosen], whole.take(pa.array(chosen)).combine_chunks().to_batches()
    taken = pa.Table.from_batches(kept).combine_chunks()
    columns = _Columns(source, request, names)
    read = columns.read([taken.column(at).combine_chunks() for at in range(len(names))], len(keys))
    # What is wrong with a cell is told when all rows are encoded, with its place in the source.
    ids = tuple(str(at) for at in range(len(keys)))
    return Table(request.dataset, source.label, ids, names, tuple(read[name] for name in names))


def encode_source(source: Source, request: TableRequest, plan: FieldPlan, folder: Path) -> EncodedRows:
    """Encode all rows of a source, in its order, into two files of a folder; return them memory-mapped.

    Raises:
        DataError: The source is broken, a column is missing, or a cell does not fit its column.
        ConfigError: A column declares that rows without a value are dropped.
    """
    names = tuple(name for name in _features(source, request) if name in plan.names)
    columns, rows = _Columns(source, request, names), 0
    with (folder / _INDICES).open("wb") as indices, (folder / _NUMBERS).open("wb") as numbers:
        for batch in source.batches(names):
            read = columns.read([batch.column(at) for at in range(len(names))], batch.num_rows)
            encoded = plan.encode_columns(read, batch.num_rows)
            indices.write(encoded.indices.astype("<i4").tobytes())
            numbers.write(encoded.numbers.astype("<f4").tobytes())
            rows += batch.num_rows
    columns.require_fit()
    return open_encoded(plan, folder, rows)


def open_encoded(plan: FieldPlan, folder: Path, rows: int) -> EncodedRows:
    """Return rows that were encoded into a folder, memory-mapped and read-only."""
    layout = plan.layout
    shapes = ((_INDICES, "<i4", sum(layout.widths)), (_NUMBERS, "<f4", layout.numbers))
    indices, numbers = (
        # An empty file cannot be mapped.
        np.memmap(folder / name, dtype=kind, mode="r", shape=(rows, width))
        if rows and width
        else np.empty((rows, width), dtype=kind)
        for name, kind, width in shapes
    )
    return EncodedRows(indices, numbers)


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

    def read(self, cells: Sequence[pa.Array], rows: int) -> dict[str, Column]:
        """Return the columns of the next batch."""
        columns = dict(zip(self._names, map(self._column, self._names, cells), strict=True))
        for name, column in columns.items():
            if self._request.missing_of(name) == "error":
                self._faults[name].add(EMPTY, (np.flatnonzero(column.missing) + 1 + self._rows).tolist())
        self._rows += rows
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


def _features(source: Source, request: TableRequest) -> tuple[str, ...]:
    label = request.label.name if request.label is not None else None
    names = tuple(name for name in chosen_columns(source, request) if name != label)
    dropping = [name for name in names if request.missing_of(name) == "drop"]
    if dropping:
        raise ConfigError(
            f"column {dropping[0]!r} drops rows, which a stream of rows cannot",
            where=source.label,
            advice="take another rule under missing; for a network a missing value is a category of its own",
        )
    return names
