"""Reads a CSV file as text, cell by cell as it was written; no cell is interpreted here.

UTF-8 with or without a byte order mark, LF or CRLF, RFC 4180 quotes, commas, and the same gzipped (.gz).
Blank lines are skipped. Data rows are numbered from 1; the header is not counted.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.csv

from common.errors import DataError

# First bytes of files that are often renamed to .csv, and what they really are.
_FOREIGN = {
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"\x1f\x8b": "gzip data",
}
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
# How many cases an error lists before it only counts them.
SHOWN_CASES = 5


@dataclass(frozen=True, slots=True)
class CsvText:
    """A CSV file that was opened and whose header is known to be sound.

    Attributes:
        header: Column names in file order; none is empty, none comes twice.
    """

    path: Path
    header: tuple[str, ...]

    def read(self, columns: Sequence[str]) -> Mapping[str, pa.ChunkedArray]:
        """Return the named columns as text, all of one length, at least one row.

        Raises:
            DataError: Rows of the wrong length, bytes that are not UTF-8, or no rows.
        """
        positions = [str(self.header.index(name)) for name in columns]
        ragged = _Ragged()
        with _readable(self.path), open_binary(self.path) as stream:
            table = self._parse(stream, positions, ragged)
        if ragged.rows:
            raise self._ragged_rows(ragged)
        return {name: table.column(at) for name, at in zip(columns, positions, strict=True)}

    def where(self, row: int) -> str:
        """Return "row 3 (line 4)", the line only when it can be told."""
        line = self._lines([row]).get(row)
        return f"row {row}" if line is None else f"row {row} (line {line})"

    def _parse(self, stream: BinaryIO, positions: list[str], ragged: _Ragged) -> pa.Table:
        # Columns are addressed by position: names come from the header that was checked before.
        names = [str(position) for position in range(len(self.header))]
        try:
            return pyarrow.csv.read_csv(
                stream,
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False, column_names=names, skip_rows_after_names=1
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    newlines_in_values=True, invalid_row_handler=ragged.note
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    include_columns=positions,
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            # Arrow's own message quotes cells, so it is neither shown nor chained.
            raise self._not_parsed() from None

    def _ragged_rows(self, ragged: _Ragged) -> DataError:
        first = "; ".join(
            f"{self.where(row)} has {found}" for row, found in list(ragged.rows.items())[:SHOWN_CASES]
        )
        return DataError(
            f"{self.path} has {counted(ragged.count, 'row')} without the header's {len(self.header)} fields",
            where=f"{self.path}: {first}{', …' if ragged.count > SHOWN_CASES else ''}",
            advice="look for commas outside quotes, unclosed quotes, or a truncated export",
        )

    def _not_parsed(self) -> DataError:
        with open_binary(self.path) as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError:
                    return _not_utf8(self.path, number)
        return DataError(
            f"{self.path} is not well-formed CSV",
            where=str(self.path),
            advice="look for an unclosed quote, or a field longer than 1 MB",
        )

    def _lines(self, rows: Sequence[int]) -> dict[int, int]:
        """Return the line on which each of these rows begins; only the way to an error needs it."""
        wanted = set(rows)
        lines: dict[int, int] = {}
        row, begin = 0, 0
        try:
            for begin, record in _records(self.path):
                row += bool(record)
                if row - 1 in wanted:
                    lines.setdefault(row - 1, begin)
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


def open_csv(path: Path) -> CsvText:
    """Open a CSV file and check its header.

    Raises:
        DataError: The file is missing, empty, not text, or has an unusable header.
    """
    with _readable(path):
        _refuse_foreign(path)
        try:
            records = list(islice((record for _, record in _records(path) if record), 2))
        except csv.Error as failure:
            raise DataError(
                f"the header of {path} cannot be read", where=f"{path}, line 1", advice=str(failure)
            ) from failure
    if not records:
        raise DataError(f"{path} is empty", where=str(path), advice="export the file again")
    header = records[0]
    if any("\udc80" <= letter <= "\udcff" for letter in "".join(header)):
        raise _not_utf8(path, 1)
    _check_header(path, header)
    if len(records) == 1:
        raise DataError(f"{path} has a header and no rows", where=str(path), advice="export the file again")
    return CsvText(path, tuple(header))


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading bytes, unpacked when its name ends in .gz."""
    if path.suffix.lower() == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def looks_like_data(header: Sequence[str]) -> bool:
    """Tell whether a header holds numbers, so that it is a row of data and must not be printed."""
    return any(_NUMBER.fullmatch(part) for name in header for part in re.split(r"[;\t|]", name))


def counted(count: int, noun: str) -> str:
    """Return "1 row", "2 rows"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line on which the record begins, fields); a blank line is a record without fields."""
    with open_binary(path) as binary:
        # Bytes that are not UTF-8 pass here: they matter only in the columns that are read.
        text = (line.decode("utf-8", "surrogateescape") for line in binary)
        reader = csv.reader(chain([next(text, "").removeprefix("\ufeff")], text))
        begin = 1
        for record in reader:
            yield begin, record
            begin = reader.line_num + 1


def _refuse_foreign(path: Path) -> None:
    with open_binary(path) as stream:
        start = stream.read(4)
    for mark, kind in _FOREIGN.items():
        if start.startswith(mark):
            raise DataError(
                f"{path} is {kind}, not CSV text",
                where=str(path),
                advice="save it as CSV in UTF-8" if mark != b"\x1f\x8b" else "let its name end in .csv.gz",
            )


def _check_header(path: Path, header: list[str]) -> None:
    where = f"{path}, header"
    delimiter = next((mark for mark in (";", "\t", "|") if mark in header[0]), None)
    if len(header) == 1 and delimiter is not None:
        named = "one column" if looks_like_data(header) else f"one column {header[0]!r}"
        raise DataError(
            f"{named} found in {path}, delimiter {delimiter!r}?",
            where=where,
            advice="export the file with commas between the fields",
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
            f"{path} has more than one column called {', '.join(map(repr, islice(repeated, SHOWN_CASES)))}",
            where=where,
            advice="rename or remove the repeated columns",
        )


def no_header(path: Path) -> DataError:
    """Return the error for a file whose first line is data; the line is not printed."""
    return DataError(
        f"the first line of {path} holds numbers: the file seems to have no header",
        where=f"{path}, line 1",
        advice="add a first line with the column names",
    )


def _not_utf8(path: Path, line: int) -> DataError:
    return DataError(
        f"{path} is not UTF-8 text",
        where=f"{path}, line {line} (the first such line)",
        advice="convert it, for example: iconv -f latin1 -t utf-8",
    )


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what the operating system and gzip say about a file into a DataError."""
    try:
        yield
    except FileNotFoundError as failure:
        raise DataError(
            f"there is no file {path}", where=str(path), advice="check the path in the party file"
        ) from failure
    except IsADirectoryError as failure:
        raise DataError(f"{path} is a directory, not a file", where=str(path)) from failure
    except PermissionError as failure:
        raise DataError(
            f"{path} may not be read by this user", where=str(path), advice="check the file's owner and mode"
        ) from failure
    except (EOFError, gzip.BadGzipFile, zlib.error) as failure:
        raise DataError(
            f"{path} is not whole gzip data", where=str(path), advice="copy or compress the file again"
        ) from failure
    except OSError as failure:
        raise DataError(f"{path} cannot be read: {failure.strerror}", where=str(path)) from failure
