"""Sets of blinded ids: made and multiplied over an executor, sorted, intersected.

The arithmetic of one point is in psi_curve.py. Work goes to the executor in chunks of ids or of points, and
comes back as bytes; nothing is held but the set itself, 32 bytes an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from common.crypto.fanout import in_order
from common.crypto.psi_curve import (
    POINT_BYTES,
    SecretScalar,
    check_points,
    hash_to_curve,
    multiply,
    split_points,
)
from common.errors import RemoteProtocolError
from common.types import Ints

# (n,) of 32 bytes each. NumPy compares them as bytes; it pads with zero bytes, which loses nothing here
# because all have the same width.
Points: TypeAlias = NDArray[np.bytes_]

Progress: TypeAlias = Callable[[int], None]
"""Is told how many ids more are done; may raise to stop the work."""

# A tenth of a second of work: progress is smooth, and the pool's overhead does not show.
_CHUNK = 2048

# A peer can make us hold 32 bytes for each id it declares, and do 33 us of work: a gigabyte, and 20 minutes.
MAX_IDS = 2**25


def blind_ids(ids: Sequence[str], scalar: SecretScalar, executor: Executor, progress: Progress) -> Points:
    """Return [scalar]H(id) of every id, in their order."""
    chunks = (ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK))
    return _collected(in_order(executor, partial(_blind_chunk, scalar), chunks), progress)


def blind_points(points: Points, scalar: SecretScalar, executor: Executor, progress: Progress) -> Points:
    """Return [scalar]P of every point that a peer sent, in their order.

    Raises:
        RemoteProtocolError: One of them is not a point that an honest party sends.
    """
    chunks = (points[start : start + _CHUNK].tobytes() for start in range(0, len(points), _CHUNK))
    return _collected(in_order(executor, partial(_multiply_chunk, scalar), chunks), progress)


def parse_points(data: bytes | bytearray) -> Points:
    """Return the points that a peer sent; whether they lie on the curve is checked when they are used.

    Raises:
        RemoteProtocolError: Not whole points.
    """
    if len(data) % POINT_BYTES:
        raise RemoteProtocolError("blinded ids have 32 bytes each")
    return np.frombuffer(data, dtype=f"S{POINT_BYTES}")


def sorting_order(points: Points) -> Ints:
    """Return the positions that sort a set of points.

    Raises:
        RemoteProtocolError: A point comes twice, though ids come once; it would mark itself by that.
    """
    order = np.argsort(points, kind="stable")
    ranked = points[order]
    if (ranked[1:] == ranked[:-1]).any():
        raise RemoteProtocolError("a blinded id comes twice in one set")
    return order.astype(np.int64)


def common_positions(sets: Sequence[Points]) -> list[Ints]:
    """Return where the points that every set has stand in each set, in the order of these points."""
    orders = [sorting_order(points) for points in sets]
    ranked = [points[order] for points, order in zip(sets, orders, strict=True)]
    common = ranked[0]
    for other in ranked[1:]:
        common = common[_contained(common, other)]
    return [order[np.searchsorted(points, common)] for points, order in zip(ranked, orders, strict=True)]


def count_common(left: Points, right: Points) -> int:
    """Return how many points two sets share."""
    return int(np.count_nonzero(_contained(left, np.sort(right))))


def _contained(points: Points, ranked: Points) -> NDArray[np.bool_]:
    if not len(ranked):
        return np.zeros(len(points), dtype=np.bool_)
    at = np.minimum(np.searchsorted(ranked, points), len(ranked) - 1)
    return np.asarray(ranked[at] == points, dtype=np.bool_)


def _blind_chunk(scalar: SecretScalar, ids: Sequence[str]) -> bytes:
    return multiply([hash_to_curve(one) for one in ids], scalar)


def _multiply_chunk(scalar: SecretScalar, data: bytes) -> bytes:
    points = split_points(data)
    check_points(points)
    return multiply(points, scalar)


def _collected(parts: Iterator[bytes], progress: Progress) -> Points:
    collected = bytearray()
    for part in parts:
        collected += part
        progress(len(part) // POINT_BYTES)
    return np.frombuffer(collected, dtype=f"S{POINT_BYTES}")
