"""A party's own rows: ids and numeric columns, read from a CSV file and checked once."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from common.data.csv_text import SHOWN_CASES, CsvText, counted, looks_like_data, no_header, open_csv
from common.data.ids import IdRule
from common.data.numbers import Faults, parse_numbers
from common.errors import DataError
from common.types import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of one dataset; every id is unique and every value finite.

    Attributes:
        name: The dataset's name in the party file.
        source: The file it came from, for messages.
        ids: n ids in file order; may be seen by their owner alone.
        features: d column names, the order of the columns of `values`.
        values: (n, d), read-only; may be seen by their owner alone.
    """

    name: str
    source: str
    ids: tuple[str, ...] = field(repr=False)
    features: tuple[str, ...]
    values: Floats = field(repr=False)

    @property
    def rows(self) -> int:
        """Number of rows n."""
        return len(self.ids)

    def column(self, name: str) -> Floats:
        """Return one column, (n,)."""
        return self.values[:, self._position(name)]

    def select(self, names: Sequence[str]) -> Table:
        """Return the table with these columns only, in this order."""
        positions = [self._position(name) for name in names]
        return replace(self, features=tuple(names), values=_frozen(self.values[:, positions]))

    def without(self, name: str) -> Table:
        """Return the table without one column, such as the label."""
        self._position(name)
        return self.select([feature for feature in self.features if feature != name])

    def take(self, positions: Ints) -> Table:
        """Return the rows at these positions (from 0), in this order."""
        ids = tuple(self.ids[position] for position in positions)
        return replace(self, ids=ids, values=_frozen(self.values[positions]))

    def digest(self) -> bytes:
        """Return SHA-256 over ids, column names and values; may be seen by their owner alone."""
        sha = hashlib.sha256(b"colonnade table v1")
        for text in (str(self.rows), *self.features, *self.ids):
            data = text.encode()
            sha.update(len(data).to_bytes(8, "big") + data)
        sha.update(np.ascontiguousarray(self.values, dtype="<f8").tobytes())
        return sha.digest()

    def _position(self, name: str) -> int:
        if name not in self.features:
            raise _missing_columns(Path(self.source), [name], self.features)
        return self.features.index(name)


def read_csv_table(
    path: Path, dataset: str, id_rule: IdRule, features: Literal["all"] | Collection[str] = "all"
) -> Table:
    """Read ids and numeric columns of a CSV file (.csv or .csv.gz).

    Args:
        path: The file; every row of it is read.
        dataset: Its name in the party file.
        id_rule: Which column holds the ids and how a cell becomes an id.
        features: Columns to read besides the id, the label among them; "all" takes every column.

    Raises:
        DataError: With file, row (data rows from 1, the header not counted) and column, and the number
            of cases; never with the content of a cell or an id.
    """
    text = open_csv(path)
    names = _chosen(text, id_rule.column, features)
    cells = text.read([id_rule.column, *names])
    ids = _ids(text, cells[id_rule.column], id_rule)
    return Table(dataset, str(path), ids, names, _frozen(_numbers(text, names, cells)))


def _chosen(text: CsvText, id_column: str, features: Literal["all"] | Collection[str]) -> tuple[str, ...]:
    if id_column not in text.header:
        if looks_like_data(text.header):
            raise no_header(text.path)
        raise _missing_columns(text.path, [id_column], text.header)
    if features == "all":
        names = tuple(name for name in text.header if name != id_column)
    else:
        names = tuple(dict.fromkeys(features))
    absent = [name for name in names if name not in text.header]
    if absent:
        raise _missing_columns(text.path, absent, text.header)
    if id_column in names:
        raise DataError(
            f"the id column {id_column!r} is also listed as a feature",
            where=str(text.path),
            advice="remove it from the dataset's features",
        )
    if not names:
        raise DataError(
            f"{text.path} has no column besides the id column {id_column!r}", where=f"{text.path}, header"
        )
    return names


def _missing_columns(path: Path, absent: Sequence[str], present: Sequence[str]) -> DataError:
    named = ", ".join(repr(name) for name in absent[:SHOWN_CASES])
    close = difflib.get_close_matches(
        absent[0].strip().lower(), [name.strip().lower() for name in present], 1
    )
    if close:
        meant = next(name for name in present if name.strip().lower() == close[0])
        advice = f"did you mean {meant!r}?"
    else:
        shown = ", ".join(repr(name) for name in present[:12])
        advice = f"the columns are {shown}{', …' if len(present) > 12 else ''}"
    return DataError(f"{path} has no column {named}", where=f"{path}, header", advice=advice)


def _ids(text: CsvText, cells: pa.ChunkedArray, rule: IdRule) -> tuple[str, ...]:
    ids = tuple(rule.canonical(cell) for cell in cells.to_pylist())
    where = f"{text.path}, column {rule.column!r}"
    empty = [row for row, one in enumerate(ids, start=1) if not one]
    if empty:
        raise DataError(
            f"the id is empty in {counted(len(empty), 'row')} of {text.path}",
            where=f"{where}: {_listed([text.where(row) for row in empty[:SHOWN_CASES]], len(empty))}",
            advice="give every row an id or remove the row",
        )
    broken = [row for row, one in enumerate(ids, start=1) if "\n" in one]
    if broken:
        raise DataError(
            f"the id holds a line break in {counted(len(broken), 'row')} of {text.path}",
            where=f"{where}: {_listed([text.where(row) for row in broken[:SHOWN_CASES]], len(broken))}",
            advice="look for an unclosed quote",
        )
    if len(set(ids)) < len(ids):
        pairs, count = _repeated(ids)
        shown = [f"{text.where(row)} repeats row {first}" for row, first in pairs]
        raise DataError(
            f"an id comes again in {counted(count, 'row')} of {text.path}",
            where=f"{where}: {_listed(shown, count)}",
            advice="every id may come once; keep one row for each entity",
        )
    return ids


def _repeated(ids: Sequence[str]) -> tuple[list[tuple[int, int]], int]:
    """Return the first few (row, row of the same id before), and how many there are."""
    seen: dict[str, int] = {}
    pairs: list[tuple[int, int]] = []
    for row, one in enumerate(ids, start=1):
        first = seen.setdefault(one, row)
        if first != row and len(pairs) < SHOWN_CASES:
            pairs.append((row, first))
    return pairs, len(ids) - len(seen)


def _numbers(text: CsvText, names: Sequence[str], cells: Mapping[str, pa.ChunkedArray]) -> Floats:
    parsed = {name: parse_numbers(cells[name]) for name in names}
    faults = {name: column for name, column in parsed.items() if isinstance(column, Faults)}
    if faults:
        raise _not_numeric(text, faults)
    return np.column_stack([column for column in parsed.values() if not isinstance(column, Faults)])


def _not_numeric(text: CsvText, faults: Mapping[str, Faults]) -> DataError:
    total = sum(column.total for column in faults.values())
    shown = [
        f"column {name!r}: {_described(text, column)}" for name, column in list(faults.items())[:SHOWN_CASES]
    ]
    more = f"; and {len(faults) - SHOWN_CASES} more columns" if len(faults) > SHOWN_CASES else ""
    return DataError(
        f"{text.path}: {counted(total, 'cell')} in {counted(len(faults), 'column')} cannot serve as numbers",
        where=f"{text.path}, {'; '.join(shown)}{more}",
        advice="mend these cells, or list only numeric columns under the dataset's features",
    )


def _described(text: CsvText, column: Faults) -> str:
    return "; ".join(
        f"{fault}: {_listed([text.where(row) for row in rows], column.counts[fault])}"
        for fault, rows in column.first.items()
    )


def _listed(shown: Sequence[str], total: int) -> str:
    more = f", … ({total} in all)" if total > len(shown) else ""
    return ", ".join(shown) + more


def _frozen(values: Floats) -> Floats:
    # A copy of our own, so that nobody else's array becomes read-only.
    own = np.array(values, dtype=np.float64, order="C")
    own.flags.writeable = False
    return own
