"""Rows as a network takes them; may lie in memory-mapped files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from common.data.columns import Codes
from common.errors import LocalProtocolError
from common.nets.shape import FieldLayout
from common.types import Ints

# Enough to keep a hash busy, and some megabytes for wide rows.
_HASHED_ROWS = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRows:
    """n encoded rows; may be seen by their owner alone.

    Attributes:
        indices: (n, c) int32, rows of the party's embedding table; the table's last row is the padding.
        numbers: (n, k) float32, finite.
        files: Where they are mapped from; None when they are in memory.
    """

    indices: Codes = field(repr=False)
    numbers: npt.NDArray[np.float32] = field(repr=False)
    files: MappedFiles | None = field(default=None, repr=False)

    def digest(self) -> bytes:
        """Return SHA-256 over all rows; may be seen by their owner alone."""
        sha = hashlib.sha256(str((self.indices.shape, self.numbers.shape)).encode())
        for begin in range(0, len(self), _HASHED_ROWS):
            end = begin + _HASHED_ROWS
            sha.update(np.ascontiguousarray(self.indices[begin:end], dtype="<i4").tobytes())
            sha.update(np.ascontiguousarray(self.numbers[begin:end], dtype="<f4").tobytes())
        return sha.digest()

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process of this machine map the files, rather than send it what is in them."""
        if self.files is not None:
            return MappedFiles.opened, (self.files,)
        return EncodedRows, (self.indices, self.numbers)

    def in_memory(self) -> EncodedRows:
        """Return the same rows, for a process that cannot see their files."""
        return EncodedRows(np.array(self.indices), np.array(self.numbers))

    def __len__(self) -> int:
        return len(self.indices)

    def require_fit(self, layout: FieldLayout) -> None:
        """Return if a network of this layout can take the rows.

        Raises:
            LocalProtocolError: They were encoded by another plan.
        """
        n = len(self.indices)
        if self.indices.shape != (n, sum(layout.widths)) or self.numbers.shape != (n, layout.numbers):
            raise LocalProtocolError("the rows were encoded for another network")

    def take(self, rows: Ints) -> EncodedRows:
        """Return the rows at these positions, copied into memory."""
        return EncodedRows(np.asarray(self.indices[rows]), np.asarray(self.numbers[rows]))


@dataclass(frozen=True, slots=True)
class MappedFiles:
    """Two files that hold encoded rows; opening them again in another process copies nothing.

    Attributes:
        folder: That they lie in.
        rows: n.
        columns: c, of indices.
        numbers: k.
    """

    folder: Path
    rows: int
    columns: int
    numbers: int

    @property
    def shapes(self) -> Iterator[tuple[Path, str, tuple[int, int]]]:
        """Path, type and shape of either file."""
        yield self.folder / "indices.i4", "<i4", (self.rows, self.columns)
        yield self.folder / "numbers.f4", "<f4", (self.rows, self.numbers)

    def opened(self) -> EncodedRows:
        """Return the rows, memory-mapped and read-only."""
        # An empty file cannot be mapped. A plain view of a map is faster to index than the map itself.
        indices, numbers = (
            np.asarray(np.memmap(path, dtype=kind, mode="r", shape=shape))
            if shape[0] and shape[1]
            else np.empty(shape, dtype=kind)
            for path, kind, shape in self.shapes
        )
        return EncodedRows(indices, numbers, self)
