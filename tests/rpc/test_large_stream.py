"""A vector of 200,000 ciphertexts passes with gRPC's default message limits and in flat memory."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from common.rpc.chunks import chunk_slices
from common.rpc.pb import he_linear_pb2 as he
from tests.rpc.parties import TURN, certified, dialled, process_serving

ROWS, CIPHERTEXT_BYTES = 200_000, 512
TOTAL_BYTES = ROWS * CIPHERTEXT_BYTES
FLAT_BYTES = 48 * 1024 * 1024
"""What a process may grow by: less than half of what passes, and mostly gRPC's own flow-control window."""


class Memory:
    """The resident size of two processes, sampled while a stream passes between them."""

    def __init__(self, *processes: int) -> None:
        self._processes = processes
        self._first = self._now()
        self._most = self._first

    def sample(self) -> None:
        self._most = tuple(max(pair) for pair in zip(self._most, self._now(), strict=True))

    @property
    def growth_bytes(self) -> tuple[int, ...]:
        return tuple(most - first for most, first in zip(self._most, self._first, strict=True))

    def _now(self) -> tuple[int, ...]:
        return tuple(resident_bytes(process) for process in self._processes)


def resident_bytes(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


async def residuals(rows: int, memory: Memory | None = None) -> AsyncIterator[he.EncryptedResiduals]:
    for part in chunk_slices(rows, CIPHERTEXT_BYTES):
        if memory is not None:
            memory.sample()
        yield he.EncryptedResiduals(turn=TURN, ciphertexts=bytes((part.stop - part.start) * CIPHERTEXT_BYTES))


@pytest.mark.fullsize
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_200_000_ciphertexts_pass_with_default_limits_and_flat_memory_at_both_ends(
    tmp_path: Path,
) -> None:
    _, at_b = certified(tmp_path, "party_a", "party_b")
    async with process_serving(tmp_path) as (address, process), dialled(address, at_b) as stub:
        await stub.ApplyResiduals(residuals(ROWS // 50), timeout=60)
        memory = Memory(process.pid, os.getpid())
        reply = await stub.ApplyResiduals(residuals(ROWS, memory), timeout=60)
        memory.sample()
    assert reply.turn.round == TOTAL_BYTES
    assert max(memory.growth_bytes) < FLAT_BYTES, memory.growth_bytes
