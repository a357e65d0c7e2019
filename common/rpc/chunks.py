"""How long vectors are cut for streaming, so that neither memory nor message size depends on the rows."""

from __future__ import annotations

from collections.abc import Iterator

from common.errors import LocalProtocolError

CHUNK_BYTES = 512 * 1024
"""Payload of one streamed message: an eighth of gRPC's default limit of 4 MiB, which we leave as it is,
and large enough that the cost per message does not show (1 MiB chunks are not measurably faster)."""


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
