"""Reads LIBSVM text, `label number:value number:value …`, through scikit-learn; our own eyes only for errors.

The format knows no ids and no names. Ids come from a CSV file beside it, line by line in the same order, or
are the row numbers, if the party says so. Columns are called by their numbers.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from sklearn.datasets import load_svmlight_file

from common.data.cells import id_texts
from common.data.csv_source import open_csv
from common.data.files import open_binary, readable
from common.data.ids import IdRule
from common.data.source import CsvFile, LibsvmFile
from common.data.sparse_columns import SparseColumns
from common.data.wording import SHOWN_CASES, counted, listed, no_such_columns
from common.errors import DataError
from common.types import Floats

# scikit-learn counts columns with 32 bits.
_MOST_COLUMNS = (1 << 31) - 2
_UNSORTED = "column numbers that do not ascend"


@dataclass(frozen=True, slots=True, eq=False)
class LibsvmRows:
    """What a file holds.

    Attributes:
        labels: First field of each row, (n,), NaN where it says nan; a passive party has no use for them.
        columns: Of the other fields.
    """

    labels: Floats
    columns: SparseColumns


@dataclass(frozen=True, slots=True)
class LibsvmSource:
    """A LIBSVM file, and what its party declared about it."""

    declared: LibsvmFile

    @property
    def label(self) -> str:
        """The path."""
        return str(self.declared.path)

    @property
    def columns(self) -> tuple[str, ...]:
        """The one column that has a name."""
        return (self.declared.label,)

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the ids come from, when they are row numbers."""
        if self.declared.ids is not None:
            return ()
        return (f"{self.declared.path.name}: ids are row numbers, as the party file declares",)

    def read(self) -> LibsvmRows:
        """Return all rows.

        Raises:
            DataError: The file is not LIBSVM text, or a value in it is not finite; with file, row and line.
        """
        path = self.declared.path
        with readable(path):
            try:
                with _text(path) as stream:
                    matrix, labels = load_svmlight_file(stream, zero_based=True)
            except (ValueError, OverflowError):
                # Its message quotes what it could not read, so it is neither shown nor chained.
                raise self._malformed() from None
            if not matrix.shape[0]:
                raise DataError(f"{path} has no rows", where=str(path), advice="export it again")
            if self.declared.first_number == 1 and matrix.nnz and not matrix.indices.min():
                raise self._malformed()
            if not np.isfinite(matrix.data).all() or np.isinf(labels).any():
                raise self._malformed()
        return LibsvmRows(labels, SparseColumns.of(matrix))

    def ids(self, rule: IdRule, rows: int) -> list[str]:
        """Return the id of every row.

        Raises:
            DataError: The file of ids cannot be read, or has another number of rows.
        """
        if self.declared.ids is None:
            return [rule.canonical(str(row)) for row in range(1, rows + 1)]
        beside = open_csv(CsvFile(self.declared.ids))
        if rule.column not in beside.columns:
            raise no_such_columns(beside.label, [rule.column], beside.columns)
        where, ids = f"{beside.label}, column {rule.column!r}", list[str]()
        for batch in beside.batches([rule.column]):
            ids += map(rule.canonical, id_texts(batch.column(0), where))
        if len(ids) != rows:
            raise DataError(
                f"{beside.label} has {counted(len(ids), 'id')} for {counted(rows, 'row')} of {self.label}",
                where=beside.label,
                advice="it needs a header and one line for each row, in the same order",
            )
        return ids

    def locate(self, rows: Sequence[int]) -> Mapping[int, str]:
        """Return "row 3 (line 5)"; only the way to an error needs it."""
        wanted, places = set(rows), dict[int, str]()
        with readable(self.declared.path):
            for row, (line, _) in enumerate(_records(self.declared.path), start=1):
                if row in wanted:
                    places[row] = f"row {row} (line {line})"
        return {row: places.get(row, f"row {row}") for row in rows}

    def _malformed(self) -> DataError:
        """Look for what is wrong, row by row."""
        found: dict[str, list[str]] = {}
        for row, (line, fields) in enumerate(_records(self.declared.path), start=1):
            fault = _fault(fields, self.declared.first_number)
            if fault:
                found.setdefault(fault, []).append(f"row {row} (line {line})")
        shown = "; ".join(
            f"{fault}: {listed(places[:SHOWN_CASES], len(places))}" for fault, places in found.items()
        )
        total = sum(map(len, found.values()))
        advice = "a row is `label number:value number:value …`, with ascending column numbers"
        if any("column number 0" in fault for fault in found):
            advice = "declare first_number: 0 under source if columns are counted from 0"
        return DataError(
            f"{self.label} is not LIBSVM text: {counted(total, 'row')} cannot be read",
            where=f"{self.label}, {shown}" if shown else self.label,
            advice=advice,
        )


def open_libsvm(declared: LibsvmFile) -> LibsvmSource:
    """Return the source; its file must be there.

    Raises:
        DataError: It cannot be opened.
    """
    with readable(declared.path), open_binary(declared.path) as stream:
        stream.read(1)
    return LibsvmSource(declared)


def _text(path: Path) -> BinaryIO:
    """Open a file behind its byte order mark."""
    stream = open_binary(path)
    if stream.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        stream.seek(0)
    return stream


def _records(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (line, fields) of every line that is no comment and not blank."""
    with _text(path) as stream:
        for line, content in enumerate(stream, start=1):
            fields = content.split(b"#", 1)[0].split()
            if fields:
                yield line, fields


def _fault(fields: list[bytes], first_number: int) -> str:
    """Return what is wrong with a row, "" for nothing."""
    label = _number(fields[0])
    if label is None:
        return "a label that is no number"
    if math.isinf(label):
        return "a label that is not finite"
    last = first_number - 1
    for text in (one for one in fields[1:] if not one.startswith(b"qid:")):
        number, colon, value = text.partition(b":")
        size = _number(value)
        if not colon or not number.isdigit() or size is None:
            return "a field that is not number:value"
        if not math.isfinite(size):
            return "a value that is missing or not finite"
        if len(number) > 10 or not first_number <= int(number) <= _MOST_COLUMNS:
            return (
                f"a column number 0 or beyond {_MOST_COLUMNS:,}" if first_number else "a huge column number"
            )
        if int(number) <= last:
            return _UNSORTED
        last = int(number)
    return ""


def _number(text: bytes) -> Any:
    try:
        return float(text)
    except ValueError:
        return None
