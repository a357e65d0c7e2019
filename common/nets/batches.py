"""Which rows make a batch: the same at every party, in every process and version."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from common.errors import LocalProtocolError
from common.types import Ints


def epoch_order(rows: int, seed: int, epoch: int) -> Ints:
    """Return the positions 0 … rows − 1 in the order of an epoch.

    They are sorted by 64-bit words of Philox, whose raw stream numpy promises not to change.
    """
    key = hashlib.sha256(f"colonnade epoch v1|{seed}|{epoch}".encode("ascii")).digest()[:16]
    words = np.random.Philox(key=np.frombuffer(key, dtype="<u8")).random_raw(rows)
    return np.argsort(np.asarray(words), kind="stable").astype(np.int64)


def epoch_batches(rows: int, batch_size: int, seed: int, epoch: int) -> Iterator[Ints]:
    """Yield the batches of an epoch: every position once, sizes that differ by at most one.

    Raises:
        LocalProtocolError: There is no row, or the batch size is below 1.
    """
    count = batches_in_epoch(rows, batch_size)
    order = epoch_order(rows, seed, epoch)
    for at in range(count):
        yield order[rows * at // count : rows * (at + 1) // count]


def batches_in_epoch(rows: int, batch_size: int) -> int:
    """Return the number of batches of an epoch.

    Raises:
        LocalProtocolError: There is no row, or the batch size is below 1.
    """
    if rows < 1 or batch_size < 1:
        raise LocalProtocolError("an epoch needs a row, and a batch a size of at least 1")
    return max(1, round(rows / batch_size))
