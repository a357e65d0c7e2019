"""Fields of rows that may be larger than memory: learnt batch by batch, and encoded into files.

    plan = learn(rows, training, settings)
    encoded = encode(rows, plan, order, folder)      # memory-mapped; row i is the row at order[i]

A network takes the result as it takes any encoded rows: a batch copies its own rows into memory.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from common.data.columns import NumericColumn
from common.data.scanned import Rows
from common.nets.encoded import EncodedRows, MappedFiles
from common.nets.fields import FieldLearner, FieldPlan, FieldSettings
from common.types import Ints

# Numbers that bins are learnt from, all columns together: 64 MB.
_SAMPLE_CELLS = 1 << 23
_MOST_SAMPLED, _FEWEST_SAMPLED = 1 << 17, 1 << 13
# Which rows a sample takes is no secret, and must be the same after a loss.
_SAMPLE_SEED = 1


def learn(rows: Rows, training: Ints, settings: FieldSettings) -> FieldPlan:
    """Return what the rows at these positions teach: categories from all of them, numbers from a sample.

    It is `FieldPlan.fit` of these rows when the sample takes all of them.

    Raises:
        ConfigError: The settings name a column that does not exist or has another type.
        DataError: The source is broken, or is not what it was.
    """
    learner = FieldLearner(settings)
    trains, tells = (np.zeros(rows.head.rows, dtype=np.bool_) for _ in range(2))
    trains[training] = True
    tells[sampled(training, len(rows.features))] = True
    for cells in rows.batches(rows.features):
        all_of_them, some = np.flatnonzero(trains[cells.rows]), np.flatnonzero(tells[cells.rows])
        for name, column in cells.columns.items():
            learner.add(name, column.take(some if isinstance(column, NumericColumn) else all_of_them))
    return learner.plan(rows.head.source)


def sampled(rows: Ints, columns: int) -> Ints:
    """Return these rows when they are few for so many columns, else a uniform random sample of them."""
    most = max(_FEWEST_SAMPLED, min(_MOST_SAMPLED, _SAMPLE_CELLS // max(1, columns)))
    if len(rows) <= most:
        return rows
    draws = np.random.Philox(key=np.array([_SAMPLE_SEED, 0], dtype=np.uint64)).random_raw(len(rows))
    return rows[np.argsort(np.asarray(draws), kind="stable")[:most]]


def encode(rows: Rows, plan: FieldPlan, order: Ints, folder: Path) -> EncodedRows:
    """Encode the rows at these positions, in this order, into two files of a folder; return them mapped.

    Raises:
        DataError: The source is broken, a column is missing, or a cell does not fit its column.
        OSError: The disk does not take them.
    """
    layout, n = plan.layout, len(order)
    files = MappedFiles(folder, n, sum(layout.widths), layout.numbers)
    indices, numbers = (_reserved(*one) for one in files.shapes)
    places = np.full(rows.head.rows, -1, dtype=np.int64)
    places[order] = np.arange(n)
    for cells in rows.batches(plan.names):
        there = places[cells.rows]
        wanted = np.flatnonzero(there >= 0)
        part = plan.encode_columns(cells.columns, len(there))
        indices[there[wanted]], numbers[there[wanted]] = part.indices[wanted], part.numbers[wanted]
    return files.opened()


def _reserved(path: Path, kind: str, shape: tuple[int, int]) -> npt.NDArray[np.generic]:
    """Return a file as an array to be filled in; its bytes are on the disk before the first one is written.

    Else a disk that is full would end the process, because a mapped write cannot fail.
    """
    size = np.dtype(kind).itemsize * shape[0] * shape[1]
    if not size:
        return np.empty(shape, dtype=kind)
    # Whoever has mapped an older file keeps it whole.
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
    mapped: npt.NDArray[np.generic] = np.memmap(path, dtype=kind, mode="r+", shape=shape)
    return mapped
