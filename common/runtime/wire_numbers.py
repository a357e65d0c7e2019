"""Rows of small floats as bytes on the wire, and back as checked arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from common.errors import NumericError, RemoteProtocolError
from common.nets.protect import Singles
from common.rpc.chunks import chunk_slices

Wire: TypeAlias = Literal["float32", "float16"]


@dataclass(frozen=True, slots=True)
class WireRows:
    """How a job's rows of numbers travel: little-endian IEEE 754, row by row.

    Attributes:
        width: Numbers in a row.
        wire: How wide each one is.
    """

    width: int
    wire: Wire

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.width * self.kind.itemsize

    def rows_in(self, piece: bytes) -> int:
        """Return how many rows a chunk holds."""
        return len(piece) // self.row_bytes

    def pieces(self, rows: Singles) -> Iterator[bytes]:
        """Yield the bytes of rows in chunks; an array without a row is one empty chunk.

        Raises:
            NumericError: A number is not finite, or too large for float16.
        """
        with np.errstate(over="ignore"):
            narrow = np.ascontiguousarray(rows, dtype=self.kind)
        if not np.isfinite(narrow).all():
            raise NumericError(
                f"a number of a representation or a gradient does not fit {self.wire}",
                advice="lower train.learning_rate, or set train.wire: float32",
            )
        if not len(narrow):
            yield b""
        for part in chunk_slices(len(narrow), self.row_bytes):
            yield narrow[part].tobytes()

    def rounding_error(self, rows: Singles) -> float:
        """Return the root mean square of what the wire rounds away, relative to that of the numbers."""
        if self.wire == "float32" or not rows.size:
            return 0.0
        rounded = rows.astype(self.kind).astype(np.float64)
        size = float(np.sqrt(np.mean(np.square(rows, dtype=np.float64))))
        return float(np.sqrt(np.mean((rounded - rows) ** 2))) / size if size else 0.0

    @property
    def kind(self) -> np.dtype[Any]:
        """One number."""
        return np.dtype({"float32": "<f4", "float16": "<f2"}[self.wire])


class WireReader:
    """Puts the chunks of one array of a known number of rows together again."""

    def __init__(self, form: WireRows, rows: int) -> None:
        self._form = form
        self._rows = rows
        self._parts: list[bytes] = []
        self._missing = rows * form.row_bytes

    def add(self, piece: bytes) -> bool:
        """Take the next chunk; return whether the array is complete.

        Raises:
            RemoteProtocolError: It is longer than what is missing, or empty before the end.
        """
        if len(piece) > self._missing or (not piece and self._missing):
            raise RemoteProtocolError(
                "rows of a representation or a gradient do not have the length they should"
            )
        self._parts.append(piece)
        self._missing -= len(piece)
        return not self._missing

    def rows(self) -> Singles:
        """Return the array, (rows, width), finite.

        Raises:
            RemoteProtocolError: A number is not finite, or rows are missing.
        """
        if self._missing:
            raise RemoteProtocolError("rows of a representation or a gradient are missing")
        whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        numbers = np.frombuffer(whole, dtype=self._form.kind).reshape(self._rows, self._form.width)
        if not np.isfinite(numbers).all():
            raise RemoteProtocolError("a number of a representation or a gradient is not finite")
        return numbers.astype(np.float32)
