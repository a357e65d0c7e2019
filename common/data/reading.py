"""Reads a source into a table: which columns, which rows, and everything that is wrong with them at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from common.data.cells import id_texts
from common.data.columns import CategoricalColumn, CategoryReader, Column, NumericColumn, frozen
from common.data.csv_source import looks_like_data, no_header, open_csv
from common.data.ids import IdRule
from common.data.kept_rows import KeptRows, rows_by_id
from common.data.label_column import label_categories, zero_one_labels
from common.data.libsvm_source import LibsvmSource, open_libsvm
from common.data.numbers import EMPTY, Faults, NumberReader
from common.data.parquet_source import open_parquet
from common.data.preparation import ColumnType, Preparation
from common.data.source import CsvFile, Declared, LibsvmFile, Located, ParquetFiles, Source
from common.data.sql_source import open_sql
from common.data.table import Intake, Table
from common.data.unfit_cells import unfit_cells
from common.data.wording import no_such_columns
from common.errors import ConfigError, DataError
from common.types import Floats, Ints

Names: TypeAlias = Literal["all"] | tuple[str, ...]
Reader: TypeAlias = NumberReader | CategoryReader
AnySource: TypeAlias = Source | LibsvmSource


@dataclass(frozen=True, slots=True)
class Label:
    """The column that is to be predicted.

    Attributes:
        name: Its column.
        missing: Whether a row without a label is an error, or dropped and counted, or kept: a new row needs
            none, and new rows need not be of two classes.
        positive: Of a label with two values, the one that counts as 1, the other as 0; None takes the label
            as the number that it is.
    """

    name: str
    missing: Literal["error", "drop", "keep"] = "error"
    positive: str | None = None

    @property
    def kind(self) -> ColumnType:
        """The type as which the column is read."""
        return "numeric" if self.positive is None else "categorical"


@dataclass(frozen=True, slots=True)
class TableRequest:
    """What is wanted of a source.

    Attributes:
        dataset: The dataset's name in the party file.
        id_rule: Which column holds the ids and how a cell becomes an id.
        features: Columns to read besides id and label; "all" takes every column.
        preparation: What is declared about the columns.
        label: Only at the active party.
    """

    dataset: str
    id_rule: IdRule = field(default_factory=IdRule)
    features: Names = "all"
    preparation: Preparation = field(default_factory=Preparation)
    label: Label | None = None

    def type_of(self, name: str) -> ColumnType:
        """Return the type as which a column is read."""
        if self.label is not None and name == self.label.name:
            return self.label.kind
        return self.preparation.type_of(name)

    def missing_of(self, name: str) -> str:
        """Return what happens to a missing value of a column."""
        if self.label is not None and name == self.label.name:
            return self.label.missing
        return self.preparation.missing_of(name)


def open_source(declared: Declared) -> AnySource:
    """Open a file or a query and look at its columns.

    Raises:
        DataError: It cannot be read.
        ConfigError: Its driver is not installed.
    """
    if isinstance(declared, CsvFile):
        return open_csv(declared)
    if isinstance(declared, LibsvmFile):
        return open_libsvm(declared)
    return open_parquet(declared) if isinstance(declared, ParquetFiles) else open_sql(declared)


def read_table(source: AnySource, request: TableRequest) -> Table:
    """Read ids and columns, batch by batch; only what is asked for is kept in memory.

    Raises:
        DataError: With source, row and column, and the number of cases; never with the content of a cell
            or an id.
        ConfigError: What is declared about the columns does not fit them.
    """
    return (
        _read_sparse(source, request) if isinstance(source, LibsvmSource) else read_kept(source, request)[0]
    )


def read_kept(source: Source, request: TableRequest) -> tuple[Table, Ints]:
    """Read as `read_table` does; return also the rows' positions in the source, from 0, ascending."""
    names = chosen_columns(source, request)
    ids, readers = _read(source, request, names)
    if not ids:
        raise DataError(f"{source.label} has no rows", where=source.label, advice="export it again")
    kept = rows_by_id(source, ids, request.id_rule)
    columns = {name: _finished(reader) for name, reader in readers.items()}
    # Arrow keeps what its batches took for the next ones, and there are none.
    pa.default_memory_pool().release_unused()
    notes = [*source.notes, *_settle_label(source, request.label, columns)]
    missing = {name: column.missing for name, column in columns.items()}
    for name in (name for name in names if request.missing_of(name) == "drop"):
        reason = "without a label" if request.label and name == request.label.name else f"without {name}"
        kept.drop(missing[name], reason)
    _require_fit(source, request, readers, {name: kept.among(where) for name, where in missing.items()})
    positions = _left(source, kept)
    whole = len(positions) == len(ids)
    table = Table(
        request.dataset,
        source.label,
        tuple(ids) if whole else tuple(ids[position] for position in positions),
        names,
        tuple(columns[name] if whole else columns[name].take(positions) for name in names),
        request.preparation,
        Intake(len(ids), kept.dropped, tuple(notes)),
    )
    return table, positions


def _read_sparse(source: LibsvmSource, request: TableRequest) -> Table:
    """Read columns that only have numbers; at the party with the label, it is the one dense column."""
    label = request.label
    if label is not None and label.name not in source.columns:
        raise no_such_columns(source.label, [label.name], source.columns)
    rows = source.read()
    ids = source.ids(request.id_rule, len(rows.columns))
    kept = rows_by_id(source, ids, request.id_rule)
    sparse = rows.columns
    if request.features != "all":
        listed = [name for name in request.features if label is None or name != label.name]
        sparse = sparse.named(listed, source.label)
    columns, notes = _first_field(source, rows.labels, label, kept)
    whole = Table(
        request.dataset,
        source.label,
        tuple(ids),
        tuple(columns),
        tuple(columns.values()),
        request.preparation,
        Intake(len(ids), kept.dropped, (*source.notes, *notes)),
        sparse,
    )
    positions = _left(source, kept)
    return whole if len(positions) == len(ids) else whole.take(positions)


def _first_field(
    source: LibsvmSource, values: Floats, label: Label | None, kept: KeptRows
) -> tuple[dict[str, Column], list[str]]:
    """Return the label's column at the party that has it, and the note about it; none elsewhere."""
    if label is None:
        return {}, []
    numbers = NumericColumn(frozen(values))
    columns: dict[str, Column] = {
        label.name: numbers if label.positive is None else label_categories(numbers)
    }
    notes = [] if label.missing == "keep" else _settle_label(source, label, columns)
    unlabelled = columns[label.name].missing
    if label.missing == "drop":
        kept.drop(unlabelled, "without a label")
    rows = kept.among(unlabelled)
    if label.missing == "error" and len(rows):
        faults = Faults()
        faults.add(EMPTY, (rows + 1).tolist())
        raise unfit_cells(source, {label.name: faults}, label.name)
    return columns, notes


def _left(source: Located, kept: KeptRows) -> Ints:
    """Return the positions of the rows that are still in; there must be one."""
    positions = kept.positions()
    if not len(positions):
        raise DataError(
            f"no row of {source.label} is left", where=source.label, advice=f"left out: {kept.reasons()}"
        )
    return positions


def read_csv_table(path: Path, dataset: str, id_rule: IdRule, features: Names = "all") -> Table:
    """Read ids and numeric columns of a CSV file, nothing being declared but the ids."""
    return read_table(open_csv(CsvFile(path)), TableRequest(dataset, id_rule, features))


def chosen_columns(source: Source, request: TableRequest) -> tuple[str, ...]:
    """Return the columns to be read besides the id, the label last when features are listed.

    Raises:
        DataError: One of them does not exist, or there is none.
        ConfigError: What is declared about the columns does not fit them.
    """
    id_column, label = request.id_rule.column, request.label
    if id_column not in source.columns:
        if looks_like_data(source.columns):
            raise no_header(Path(source.label))
        raise no_such_columns(source.label, [id_column], source.columns)
    names = tuple(name for name in source.columns if name != id_column)
    if request.features != "all":
        listed = [name for name in request.features if label is None or name != label.name]
        names = tuple(dict.fromkeys([*listed, *([label.name] if label else [])]))
    wanted = [*names, *([label.name] if label else [])]
    absent = [name for name in dict.fromkeys(wanted) if name not in source.columns]
    if absent:
        raise no_such_columns(source.label, absent, source.columns)
    for role, clash in (("listed as a feature", names), ("the label", wanted)):
        if id_column in clash:
            raise ConfigError(f"the id column {id_column!r} is also {role}", where=source.label)
    if not names and request.features == "all":
        raise DataError(
            f"{source.label} has no column besides the id column {id_column!r}",
            where=f"{source.label}, header",
        )
    features = [name for name in names if label is None or name != label.name]
    request.preparation.check(source.label, features, source.columns)
    return names


def _read(
    source: Source, request: TableRequest, names: tuple[str, ...]
) -> tuple[list[str], dict[str, Reader]]:
    rule, ids = request.id_rule, list[str]()
    readers = {name: _reader(source, request, name) for name in names}
    where = f"{source.label}, column {rule.column!r}"
    for batch in source.batches([rule.column, *names]):
        ids += map(rule.canonical, id_texts(batch.column(0), where))
        for at, name in enumerate(names, start=1):
            readers[name].read(batch.column(at))
    return ids, readers


def _reader(source: Source, request: TableRequest, name: str) -> Reader:
    if request.type_of(name) == "categorical":
        return CategoryReader(f"{source.label}, column {name!r}")
    return NumberReader(request.preparation.missing_values, request.preparation.decimal)


def _finished(reader: Reader) -> Column:
    return reader.column() if isinstance(reader, CategoryReader) else NumericColumn(frozen(reader.values()))


def _settle_label(source: Located, label: Label | None, columns: dict[str, Column]) -> list[str]:
    """Turn a label of two texts into numbers; return the note about it."""
    if label is None or label.positive is None:
        return []
    column = columns[label.name]
    if not isinstance(column, CategoricalColumn):
        return []
    columns[label.name], note = zero_one_labels(column, label.name, label.positive, source.label)
    return [note]


def _require_fit(
    source: Source,
    request: TableRequest,
    readers: Mapping[str, Reader],
    missing: Mapping[str, npt.NDArray[np.intp]],
) -> None:
    """Refuse cells that are no numbers, and missing ones where that is an error."""
    faults: dict[str, Faults] = {}
    for name, reader in readers.items():
        column = reader.faults if isinstance(reader, NumberReader) else Faults()
        if request.missing_of(name) == "error" and len(missing[name]):
            column.add(EMPTY, (missing[name] + 1).tolist())
        if column.total:
            faults[name] = column
    if faults:
        raise unfit_cells(source, faults, request.label.name if request.label else None)
