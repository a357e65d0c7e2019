"""Which rows a dominator takes next: the same sequence on every platform and in every version.

A pass goes over all rows once, in the order of one 64-bit key each, which SHAKE-256 makes from the text
"colonnade vfb2 rows v1|<seed>|<party>|<pass>"; equal keys keep the order of the rows. Every dominator makes
passes of its own, so that a slow one leaves no rows behind.

Where θ is hidden, rows may not meet in ever new batches (see `rank_rule`): `FixedBatches` shuffles the order
of batches that stay the same, for all dominators.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from common.errors import DataError, LocalProtocolError
from common.types import Ints

_KEY_BYTES = 8


class BatchOrder(Protocol):
    """Which batch comes next."""

    def batch(self, number: int) -> Ints:
        """Return the rows of a batch (from 1), distinct."""
        ...


class RowOrder:
    """The batches of one dominator, by their number from 1."""

    def __init__(self, rows: int, batch_size: int, seed: int, party: str) -> None:
        """Plan passes of floor(rows / batch_size) batches; with fewer rows each batch is all of them.

        A pass leaves out rows that make no whole batch, other ones in each pass.

        Raises:
            DataError: A batch would be empty.
        """
        if batch_size < 1 or rows < 1:
            raise DataError(f"batches of {batch_size} rows cannot be taken from {rows} training rows")
        self._rows = rows
        self._batch_size = min(batch_size, rows)
        self._text = f"colonnade vfb2 rows v1|{seed}|{party}|"
        self._pass = -1
        self._order: Ints = np.zeros(0, dtype=np.int64)

    def batch(self, number: int) -> Ints:
        """Return the rows of a batch, distinct, in their order."""
        if number < 1:
            raise LocalProtocolError(f"batches are counted from 1, there is no batch {number}")
        run, place = divmod(number - 1, self._rows // self._batch_size)
        if run != self._pass:
            self._pass, self._order = run, self._shuffled(run)
        begin = place * self._batch_size
        return self._order[begin : begin + self._batch_size]

    def _shuffled(self, run: int) -> Ints:
        stream = hashlib.shake_256(f"{self._text}{run}".encode()).digest(_KEY_BYTES * self._rows)
        return np.argsort(np.frombuffer(stream, dtype=">u8"), kind="stable").astype(np.int64)


class FixedBatches:
    """The same batches in every pass, each pass in another order."""

    def __init__(self, batches: Sequence[Ints], seed: int, party: str) -> None:
        """Take the batches that all parties know; every row is in at most one."""
        self._batches = list(batches)
        self._order = RowOrder(len(self._batches), 1, seed, party)

    def batch(self, number: int) -> Ints:
        """Return the rows of a batch."""
        return self._batches[int(self._order.batch(number)[0])]
