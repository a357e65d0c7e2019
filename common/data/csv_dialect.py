"""How a CSV file is written: its encoding and its delimiter, as declared or as found out."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from common.data.files import open_binary
from common.data.source import AUTO, CsvFile
from common.errors import DataError

# First bytes of files that are often renamed to .csv, and what they really are.
_FOREIGN = {
    b"PAR1": ("a Parquet file", "declare it as `parquet:`"),
    b"PK\x03\x04": ("a zip archive or an Excel workbook", "save it as CSV in UTF-8"),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook", "save it as CSV in UTF-8"),
    b"SQLi": ("a SQLite database", "declare it as `sql:`"),
    b"ORC": ("an ORC file", "save it as Parquet"),
    b"\x28\xb5\x2f\xfd": ("Zstandard data", "unpack it, or pack it with gzip"),
    b"BZh": ("bzip2 data", "unpack it, or pack it with gzip"),
}
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
# In the order in which ties are decided.
_DELIMITERS = (",", ";", "\t", "|")
_SEP_LINE = re.compile(r"\ufeff?\"?sep=.\"?\s*", re.IGNORECASE)
# What is looked at in one go; lines are never cut, so a longer line only takes more memory.
_SCAN_BYTES = 1 << 20
# A Python csv field may be as long as Arrow's blocks allow.
_FIELD_LIMIT = 1 << 24
_NAMES = {"\t": "tab"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """Encoding and delimiter of one file.

    Attributes:
        encoding: A Python codec; `utf-8` also stands for UTF-8 with a byte order mark.
        delimiter: One character.
        notes: What was found out and is worth a sentence: nothing for UTF-8 with commas.
    """

    encoding: str
    delimiter: str
    notes: tuple[str, ...] = ()


def dialect_of(declared: CsvFile) -> Dialect:
    """Return how the file is written.

    Raises:
        DataError: It is no text at all.
    """
    path, notes = declared.path, []
    encoding = declared.encoding
    _refuse_foreign(path, encoding)
    if encoding == AUTO:
        encoding = _found_encoding(path)
        if encoding != "utf-8":
            notes.append(
                f"{path.name}: encoding {encoding} was detected, because it is not UTF-8; "
                f"`encoding: {encoding}` under source declares it"
            )
    delimiter = {"tab": "\t"}.get(declared.delimiter, declared.delimiter)
    if delimiter == AUTO:
        delimiter = _found_delimiter(path, encoding)
        if delimiter != ",":
            notes.append(
                f"{path.name}: delimiter {_NAMES.get(delimiter, delimiter)!r} was detected; "
                "`delimiter` under source declares it"
            )
    return Dialect(encoding, delimiter, tuple(notes))


def records(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield (line on which the record begins, fields); a blank line is a record without fields."""
    csv.field_size_limit(_FIELD_LIMIT)
    codec = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
    # Bytes that are not of this encoding pass here: they matter only in the columns that are read.
    with io.TextIOWrapper(open_binary(path), encoding=codec, errors="surrogateescape", newline="") as text:
        reader = csv.reader(text, delimiter=dialect.delimiter)
        begin = 1
        for record in reader:
            yield begin, record
            begin = reader.line_num + 1


def _refuse_foreign(path: Path, encoding: str) -> None:
    """Refuse a file that is something else than text in this encoding."""
    with open_binary(path) as stream:
        start = stream.read(64)
    for mark, (kind, advice) in _FOREIGN.items():
        if start.startswith(mark):
            raise DataError(f"{path} is {kind}, not CSV text", where=str(path), advice=advice)
    if _SEP_LINE.fullmatch(start.split(b"\n", 1)[0].decode("utf-8", "replace")):
        raise DataError(
            f"the first line of {path} is Excel's sep= line, not a header",
            where=f"{path}, line 1",
            advice="remove that line; the delimiter may be declared under source",
        )
    wide = encoding.startswith(("utf-16", "utf-32")) or start.startswith(tuple(_MARKS))
    if b"\0" in start and not wide:
        raise DataError(
            f"{path} holds zero bytes: it is UTF-16 without a byte order mark, or no text",
            where=str(path),
            advice="save it as UTF-8, or declare `encoding: utf-16-le` under source",
        )


def _found_encoding(path: Path) -> str:
    """Return utf-16 by its mark, cp1252 when that alone explains the bytes, utf-8 otherwise.

    A file that holds good UTF-8 letters as well as other bytes is damaged or mixed: it counts as UTF-8, and
    reading it stops at the first bad line.
    """
    foreign = False
    with open_binary(path) as stream:
        start = stream.read(2)
        if start in _MARKS:
            return _MARKS[start]
        stream.seek(0)
        while chunk := stream.read(_SCAN_BYTES) + stream.readline():
            # Most files are plain ASCII, and these are passed over at the speed of the disk.
            lines = [] if chunk.isascii() else chunk.split(b"\n")
            for line in (line for line in lines if not line.isascii()):
                if not _decodes(line, "utf-8"):
                    foreign = True
                    if not _decodes(line, "cp1252"):
                        return "utf-8"
                elif not line.removeprefix(codecs.BOM_UTF8).isascii():
                    return "utf-8"
    return "cp1252" if foreign else "utf-8"


def _decodes(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _found_delimiter(path: Path, encoding: str) -> str:
    """Return the delimiter that cuts header and first row into equally many fields, and into most."""
    best, most = _DELIMITERS[0], 1
    for delimiter in _DELIMITERS:
        try:
            rows = records(path, Dialect(encoding, delimiter))
            first = list(islice((record for _, record in rows if record), 2))
        except csv.Error:
            continue
        widths = {len(record) for record in first}
        if len(widths) == 1 and len(first[0]) > most:
            best, most = delimiter, len(first[0])
    return best
