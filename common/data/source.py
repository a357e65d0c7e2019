"""The seam between a party's rows and where they are kept: CSV, Parquet, a database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import pyarrow as pa

AUTO = "auto"


class Located(Protocol):
    """Rows that an error can point at; they are numbered from 1, the header of a file is no row."""

    @property
    def label(self) -> str:
        """How messages call the source: a path, or a URL without its password."""

    def locate(self, rows: Sequence[int]) -> Mapping[int, str]:
        """Return where these rows stand, such as "row 3 (line 4)"; only the way to an error needs it."""


class Source(Located, Protocol):
    """Rows that can be read once from the beginning, in a fixed order, in batches."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns; none is empty, none comes twice."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was found out rather than declared, such as an encoding."""

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns, in this order, a few megabytes at a time.

        Raises:
            DataError: The source is broken; with file and row, never with the content of a cell.
        """


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A CSV file, gzipped or not.

    Attributes:
        path: Of the file.
        delimiter: One character, or `auto`: the one of comma, semicolon, tab and bar that fits the header.
        encoding: A Python codec, or `auto`: UTF-8, UTF-16 by its byte order mark, or Windows-1252.
    """

    path: Path
    delimiter: str = AUTO
    encoding: str = AUTO


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """A Parquet file, or a folder whose Parquet files hold the rows in the order of their names."""

    path: Path


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """What a database answers to one query; the URL may hold a password and is never printed whole."""

    url: str = field(repr=False)
    query: str


@dataclass(frozen=True, slots=True)
class LibsvmFile:
    """A LIBSVM (SVMlight) file, gzipped or not.

    Attributes:
        path: Of the file.
        ids: A CSV file with the id of every row, in the same order; None says that ids are row numbers.
        label: How a job calls the first field of each row.
        first_number: Number of the first column.
    """

    path: Path
    ids: Path | None
    label: str = "label"
    first_number: Literal[0, 1] = 1


Declared: TypeAlias = CsvFile | ParquetFiles | SqlQuery | LibsvmFile
