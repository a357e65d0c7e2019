"""Shapes of the noise table: what the choice in common/crypto/noise.py rests on."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.micro.side_by_side import Bench
from common.crypto.entropy import SystemEntropy
from common.crypto.noise import BLOCKS, TEETH, NoiseTable

# (8, 128) are plain windows of 8 bits at 2048-bit keys: no squaring at all.
SHAPES = [
    (8, 128),
    (8, 32),
    (10, 26),
    (10, 13),
    (11, 12),
    (11, 6),
    (TEETH, BLOCKS),
    (12, 11),
    (13, 5),
    (13, 10),
]
SHAPE = pytest.mark.parametrize(("teeth", "blocks"), SHAPES)


@SHAPE
@pytest.mark.benchmark(group="noise: build the table")
def test_build(benchmark: BenchmarkFixture, bench: Bench, teeth: int, blocks: int) -> None:
    key = bench.private.public
    entropy = SystemEntropy()
    assert bench.private.decrypt(int(NoiseTable(key, teeth, blocks).draw(entropy))) == 0
    benchmark.extra_info["megabytes"] = round((blocks << teeth) * key.ciphertext_bytes / 2**20, 1)
    benchmark.pedantic(NoiseTable, args=(key.modulus, key.noise_generator, teeth, blocks), rounds=3)


@SHAPE
@pytest.mark.benchmark(group="noise: draw one power")
def test_draw(benchmark: BenchmarkFixture, bench: Bench, teeth: int, blocks: int) -> None:
    key = bench.private.public
    table = NoiseTable(key, teeth, blocks)
    entropy = SystemEntropy()
    assert bench.private.decrypt(int(table.draw(entropy))) == 0
    benchmark.pedantic(table.draw, args=(entropy,), rounds=100, warmup_rounds=5)
