"""Which rows train, which test, and which belong to a batch: the same at every party and on every machine.

Rows are put in the order of a 64-bit key each. Four keys come from one hash, in counter mode:

    key(row) = word (row mod 4) of SHA-256("colonnade <purpose> v1|<seed>|0|<row div 4>")

with words read as big-endian 64-bit integers and the text in ASCII; equal keys keep the order of the rows.
No random number generator of a library is used, because those change between versions.
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction

import numpy as np

from common.errors import DataError, LocalProtocolError
from common.types import Ints

_WORDS_PER_HASH = 4  # 256 bits are four 64-bit keys.


def split_rows(rows: int, test_fraction: float, seed: int) -> tuple[Ints, Ints]:
    """Return the positions (from 0, ascending) of the training rows and of the test rows.

    The ceil(test_fraction · rows) rows that come first in hash order are the test rows; the fraction is
    taken as the decimal number it is written as, so that 0.07 of 100 rows are 7.

    Raises:
        DataError: The fraction is outside [0, 1), or no row would be left to train on.
    """
    if not 0.0 <= test_fraction < 1.0:
        raise DataError("test_fraction must be at least 0 and below 1")
    tests = math.ceil(Fraction(repr(float(test_fraction))) * rows)
    if rows - tests < 1:
        raise DataError(
            f"a test_fraction of {test_fraction} leaves none of {rows} rows to train on",
            advice="lower test_fraction or bring more rows",
        )
    order = _hash_order(rows, "split", seed)
    return np.sort(order[tests:]), np.sort(order[:tests])


def hold_out(rows: Ints, fraction: float, purpose: str, seed: int) -> tuple[Ints, Ints]:
    """Return the rows that stay and those that are held out, each in the order in which they came.

    The round(fraction · n) rows that come first in the hash order of this purpose are held out, never all.
    """
    held = min(round(fraction * len(rows)), max(0, len(rows) - 1))
    order = _hash_order(len(rows), purpose, seed)
    return rows[np.sort(order[held:])], rows[np.sort(order[:held])]


class BatchSchedule:
    """Which training rows belong to which round: the same batches in every epoch.

    The shuffled rows are dealt once into floor(rows / batch_size) batches. Sizes differ by at most one and
    none is smaller than `batch_size`, so that a rank rule that holds for `smallest` holds always.

    Dealing anew in every epoch would show a party X_S'd for ever new sets S of the same rows: once the
    weights have settled, as many equations as there are residuals, and with them the labels.
    """

    def __init__(self, rows: int, batch_size: int | None, seed: int) -> None:
        """Plan batches over positions 0 … rows − 1; without a size, or with too few rows, all in one."""
        if rows < 1 or (batch_size is not None and batch_size < 1):
            raise DataError("a batch needs at least one row")
        self._rows = rows
        self._batches = max(1, rows // batch_size) if batch_size is not None else 1
        self._order = np.arange(rows, dtype=np.int64)
        if self._batches > 1:
            self._order = _hash_order(rows, "batches", seed)

    @property
    def batches(self) -> int:
        """Rounds in an epoch."""
        return self._batches

    @property
    def smallest(self) -> int:
        """Number of rows in the smallest batch."""
        return self._rows // self._batches

    def rows_of(self, round: int) -> Ints:
        """Return the batch of a round (from 1): ascending positions among the training rows."""
        if round < 1:
            raise LocalProtocolError(f"rounds are counted from 1, there is no round {round}")
        batch = (round - 1) % self._batches
        begin, end = (self._rows * edge // self._batches for edge in (batch, batch + 1))
        return np.sort(self._order[begin:end])


def _hash_order(rows: int, purpose: str, seed: int) -> Ints:
    start = f"colonnade {purpose} v1|{seed}|0|"
    hashes = -(-rows // _WORDS_PER_HASH)
    stream = b"".join(hashlib.sha256(f"{start}{at}".encode("ascii")).digest() for at in range(hashes))
    keys = np.frombuffer(stream, dtype=">u8")[:rows].astype(np.uint64)
    return np.argsort(keys, kind="stable").astype(np.int64)
