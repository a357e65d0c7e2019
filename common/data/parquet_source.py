"""Reads Parquet: one file, or a folder of files that together are one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from common.data.files import readable
from common.data.source import ParquetFiles
from common.data.wording import SHOWN_CASES, counted, quoted
from common.errors import DataError

# A batch has enough rows to keep Arrow busy, and few enough to stay at some tens of megabytes for wide tables
# and long texts, also when every cell becomes an object of Python's.
_MOST_ROWS, _FEWEST_ROWS = 1 << 15, 1 << 7
_BATCH_CELLS = 1 << 18
_BATCH_BYTES = 1 << 24
_SUFFIXES = (".parquet", ".parq", ".pq")
# pandas stores a frame's row index under such a name; it is not a column of the data.
_PANDAS_INDEX = "__index_level_"


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """Parquet files with the same columns.

    Attributes:
        path: The file or the folder, for messages.
        files: In the order of their rows.
        rows: Rows in each file.
    """

    path: Path
    files: tuple[Path, ...]
    rows: tuple[int, ...]
    columns: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def label(self) -> str:
        """The path."""
        return str(self.path)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns with the types that they have in the files."""
        for path in self.files:
            # Buffered ahead, a file would lie in memory whole before its last batch is read.
            with _sound(path), pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
                for batch in file.iter_batches(batch_size=_batch_rows(file, names), columns=list(names)):
                    yield batch.select(list(names))

    def locate(self, rows: Sequence[int]) -> Mapping[int, str]:
        """Return "row 3", with the file's name when there are several."""
        return {row: self._place(row) for row in rows}

    def _place(self, row: int) -> str:
        if len(self.files) == 1:
            return f"row {row}"
        rest = row
        for path, count in zip(self.files, self.rows, strict=True):
            if rest <= count:
                return f"row {rest} of {path.relative_to(self.path)}"
            rest -= count
        return f"row {row}"


def open_parquet(declared: ParquetFiles) -> ParquetSource:
    """Open a Parquet file or a folder of them; only the footers are read.

    Raises:
        DataError: There is no such file, it is no Parquet, it has no rows, or the columns differ.
    """
    path, notes = declared.path, []
    with readable(path):
        files = _files(path)
        if any("=" in part for file in files for part in file.relative_to(path).parent.parts):
            notes.append(f"{path.name}: the folders' key=value names are not read as columns")
    footers = [_footer(file) for file in files]
    first = footers[0][0]
    for file, (names, _) in zip(files, footers, strict=True):
        differing = set(names) ^ set(first)
        if differing:
            raise DataError(
                f"the files in {path} have different columns: {quoted(sorted(differing), SHOWN_CASES)}",
                where=f"{file} differs from {files[0].name}",
                advice="export them with one schema",
            )
    rows = tuple(count for _, count in footers)
    if not sum(rows):
        raise DataError(f"{path} has no rows", where=str(path), advice="export the file again")
    left_out = [name for name in first if name.startswith(_PANDAS_INDEX)]
    if left_out:
        notes.append(f"{path.name}: {counted(len(left_out), 'column')} with the row index of pandas left out")
    columns = tuple(name for name in first if name not in left_out)
    return ParquetSource(path, tuple(files), rows, columns, tuple(notes))


def _batch_rows(file: pyarrow.parquet.ParquetFile, names: Sequence[str]) -> int:
    """Return how many rows to read at a time, by the number and the size of the cells that are wanted."""
    wanted, size_bytes = set(names), 0
    for at in range(file.num_row_groups):
        group = file.metadata.row_group(at)
        parts = (group.column(position) for position in range(group.num_columns))
        size_bytes += sum(part.total_uncompressed_size for part in parts if part.path_in_schema in wanted)
    by_size = _BATCH_BYTES * file.metadata.num_rows // max(1, size_bytes)
    return int(max(_FEWEST_ROWS, min(_MOST_ROWS, _BATCH_CELLS // max(1, len(names)), by_size)))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        path.stat()
        return [path]
    # Spark and others leave markers and checksums beside the data, under names with a dot or a bar in front.
    files = sorted(
        file
        for file in path.rglob("*")
        if file.suffix.lower() in _SUFFIXES and not file.name.startswith((".", "_"))
    )
    if not files:
        raise DataError(
            f"{path} holds no Parquet files", where=str(path), advice="their names must end in .parquet"
        )
    return files


def _footer(path: Path) -> tuple[tuple[str, ...], int]:
    """Return column names and number of rows."""
    with _sound(path), pyarrow.parquet.ParquetFile(path) as file:
        names, rows = tuple(file.schema_arrow.names), int(file.metadata.num_rows)
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise DataError(
            f"{path} has more than one column called {quoted(repeated, SHOWN_CASES)}", where=str(path)
        )
    return names, rows


@contextmanager
def _sound(path: Path) -> Iterator[None]:
    with readable(path):
        try:
            yield
        except (pa.ArrowException, OSError) as failure:
            if isinstance(failure, OSError) and failure.errno is not None:
                raise
            # Arrow's own message may quote what it found.
            raise DataError(
                f"{path} is no whole Parquet file", where=str(path), advice="copy or export the file again"
            ) from None
