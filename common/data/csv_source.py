"""Reads a CSV file as text, cell by cell as it was written; no cell is interpreted here.

LF or CRLF, RFC 4180 quotes, gzipped or not. Blank lines are skipped. Data rows are numbered from 1; the
header is not counted.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from common.data.csv_dialect import Dialect, dialect_of, records
from common.data.files import open_binary, readable
from common.data.source import CsvFile
from common.data.wording import SHOWN_CASES, counted, quoted
from common.errors import DataError

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_OTHER_DELIMITERS = (";", "\t", "|", ",")
# Rows are read in blocks of this size; no row may be longer.
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CsvSource:
    """A CSV file that was opened and whose header is known to be sound."""

    path: Path
    dialect: Dialect
    header: tuple[str, ...]

    @property
    def label(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names in file order."""
        return self.header

    @property
    def notes(self) -> tuple[str, ...]:
        """Encoding and delimiter, when they were detected and are unusual."""
        return self.dialect.notes

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns as text.

        Raises:
            DataError: Rows of the wrong length, or bytes of another encoding.
        """
        positions = [str(self.header.index(name)) for name in names]
        ragged = _Ragged()
        with readable(self.path), open_binary(self.path) as stream:
            try:
                for batch in self._reader(stream, positions, ragged):
                    yield batch.rename_columns(list(names))
            except (pa.ArrowInvalid, UnicodeError):
                # Arrow's own message quotes cells, so it is neither shown nor chained.
                raise self._not_parsed() from None
        if ragged.rows:
            raise self._ragged_rows(ragged)

    def locate(self, rows: Sequence[int]) -> Mapping[int, str]:
        """Return "row 3 (line 4)", the line only when it can be told."""
        lines = self._lines(rows) if rows else {}
        return {row: f"row {row} (line {lines[row]})" if row in lines else f"row {row}" for row in rows}

    def _reader(self, stream: object, positions: list[str], ragged: _Ragged) -> Iterator[pa.RecordBatch]:
        # Columns are addressed by position: names come from the header that was checked before.
        names = [str(position) for position in range(len(self.header))]
        reader: Iterator[pa.RecordBatch] = pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False,
                block_size=_BLOCK_BYTES,
                column_names=names,
                skip_rows_after_names=1,
                encoding="utf8" if self.dialect.encoding == "utf-8" else self.dialect.encoding,
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.dialect.delimiter, newlines_in_values=True, invalid_row_handler=ragged.note
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=positions,
                strings_can_be_null=False,
            ),
        )
        return reader

    def _ragged_rows(self, ragged: _Ragged) -> DataError:
        places = self.locate(list(ragged.rows)[:SHOWN_CASES])
        first = "; ".join(f"{place} has {ragged.rows[row]}" for row, place in places.items())
        return DataError(
            f"{self.path} has {counted(ragged.count, 'row')} without the header's {len(self.header)} fields",
            where=f"{self.path}: {first}{', …' if ragged.count > SHOWN_CASES else ''}",
            advice="look for delimiters outside quotes, unclosed quotes, or a truncated export",
        )

    def _not_parsed(self) -> DataError:
        with open_binary(self.path) as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    line.decode(self.dialect.encoding)
                except UnicodeDecodeError:
                    return _wrong_encoding(self.path, self.dialect, number)
        return DataError(
            f"{self.path} is not well-formed CSV",
            where=str(self.path),
            advice="look for an unclosed quote, or a row longer than 1 MB",
        )

    def _lines(self, rows: Sequence[int]) -> dict[int, int]:
        """Return the line on which each of these rows begins."""
        wanted = set(rows)
        lines: dict[int, int] = {}
        row = 0
        try:
            for begin, record in records(self.path, self.dialect):
                row += bool(record)
                if record and row - 1 in wanted:
                    lines[row - 1] = begin
                if row - 1 >= max(wanted):
                    break
        except csv.Error:
            return lines
        return lines


@dataclass(slots=True)
class _Ragged:
    """Rows whose number of fields differs from the header's; the first few are kept."""

    count: int = 0
    rows: dict[int, int] = field(default_factory=dict)

    def note(self, row: pyarrow.csv.InvalidRow) -> str:
        self.count += 1
        if len(self.rows) <= SHOWN_CASES:
            self.rows[row.number - 1] = row.actual_columns  # Arrow counts the header as row 1.
        return "skip"


def open_csv(declared: CsvFile) -> CsvSource:
    """Open a CSV file and check its header.

    Raises:
        DataError: The file is missing, empty, not text, or has an unusable header.
    """
    path = declared.path
    with readable(path):
        try:
            dialect = dialect_of(declared)
            first = list(islice((record for _, record in records(path, dialect) if record), 2))
        except csv.Error as failure:
            raise DataError(
                f"the header of {path} cannot be read", where=f"{path}, line 1", advice=str(failure)
            ) from failure
        except UnicodeError:
            raise _wrong_encoding(path, Dialect(declared.encoding, ","), 1) from None
    if not first:
        raise DataError(f"{path} is empty", where=str(path), advice="export the file again")
    header = first[0]
    if any("\udc80" <= letter <= "\udcff" for letter in "".join(header)):
        raise _wrong_encoding(path, dialect, 1)
    _check_header(path, header, dialect)
    if len(first) == 1:
        raise DataError(f"{path} has a header and no rows", where=str(path), advice="export the file again")
    return CsvSource(path, dialect, tuple(header))


def looks_like_data(header: Sequence[str]) -> bool:
    """Tell whether a header holds numbers, so that it is a row of data and must not be printed."""
    return any(_NUMBER.fullmatch(part) for name in header for part in re.split(r"[,;\t|]", name))


def no_header(path: Path) -> DataError:
    """Return the error for a file whose first line is data; the line is not printed."""
    return DataError(
        f"the first line of {path} holds numbers: the file seems to have no header",
        where=f"{path}, line 1",
        advice="add a first line with the column names",
    )


def _check_header(path: Path, header: list[str], dialect: Dialect) -> None:
    where = f"{path}, header"
    others = (mark for mark in _OTHER_DELIMITERS if mark != dialect.delimiter and mark in header[0])
    delimiter = next(others, None)
    if len(header) == 1 and delimiter is not None:
        named = "one column" if looks_like_data(header) else f"one column {header[0]!r}"
        raise DataError(
            f"{named} found in {path}, delimiter {delimiter!r}?",
            where=where,
            advice="declare the delimiter under source, or export the file with commas between the fields",
        )
    empty = [str(at) for at, name in enumerate(header, start=1) if not name.strip()]
    if empty:
        raise DataError(
            f"a column of {path} has no name",
            where=f"{where}, column number {', '.join(empty[:SHOWN_CASES])} of {len(header)}",
            advice="name it or remove it; pandas writes such a column unless to_csv has index=False",
        )
    repeated = [name for name, times in Counter(header).items() if times > 1]
    if repeated:
        if looks_like_data(header):
            raise no_header(path)
        raise DataError(
            f"{path} has more than one column called {quoted(repeated, SHOWN_CASES)}",
            where=where,
            advice="rename or remove the repeated columns",
        )


def _wrong_encoding(path: Path, dialect: Dialect, line: int) -> DataError:
    name = "UTF-8" if dialect.encoding in ("utf-8", "auto") else dialect.encoding
    return DataError(
        f"{path} is not {name} text",
        where=f"{path}, line {line} (the first such line)",
        advice="declare `encoding` under source, or convert the file: iconv -f latin1 -t utf-8",
    )
