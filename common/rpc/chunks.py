"""How long vectors are cut for streaming, so that neither memory nor message size depends on the rows."""

from __future__ import annotations

from collections.abc import Iterator

from common.errors import LocalProtocolError

CHUNK_BYTES = 512 * 1024
"""Payload of one streamed message: an eighth of gRPC's default limit of 4 MiB, which we leave as it is,
and large enough that the cost per message does not show (1 MiB chunks are not measurably faster)."""

FLOWING_PIECES = 4
"""Pieces that a round's rows are sent in at least. What cannot overlap is the first one at the sender and the
last one at the receiver."""

FLOWING_ROWS = 64
"""But none shorter than this: 20 ms of encryption at 2048 bits."""


def rows_per_chunk(row_bytes: int) -> int:
    """Return how many rows of `row_bytes` bytes each fit into one chunk; at least one.

    Raises:
        LocalProtocolError: A single row is larger than a chunk, or has no size.
    """
    if not 0 < row_bytes <= CHUNK_BYTES:
        raise LocalProtocolError(
            f"a row of {row_bytes} bytes cannot be sent in chunks of {CHUNK_BYTES} bytes"
        )
    return CHUNK_BYTES // row_bytes


def chunk_slices(rows: int, row_bytes: int) -> Iterator[slice]:
    """Yield the slices that cut `rows` rows into chunks, in order and without a gap."""
    step = rows_per_chunk(row_bytes)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def flowing_slices(rows: int, row_bytes: int) -> Iterator[slice]:
    """Yield slices as `chunk_slices`, but short ones too for few rows.

    The party that receives a piece works on it while the sender makes the next one. Smaller pieces would cost
    more in messages, a millisecond each, than their work could overlap.
    """
    step = min(rows_per_chunk(row_bytes), max(FLOWING_ROWS, -(-rows // FLOWING_PIECES)))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
