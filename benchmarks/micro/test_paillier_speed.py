"""Each operation by this library and by phe. `extra_info.us_per_operation` is what tables quote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import phe
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.micro.side_by_side import Bench
from common.crypto.cipher import CipherVector, parse_ciphertexts
from common.crypto.fixed_point import FixedPoint

BACKENDS = pytest.mark.parametrize("backend", ["gmpy2", "phe"])
COUNT = 40


def timed(benchmark: BenchmarkFixture, operations: int, work: Callable[[], Any], rounds: int = 5) -> None:
    """Time work that has been checked already, and note the microseconds of one of its operations."""
    benchmark.pedantic(work, rounds=rounds, warmup_rounds=0)
    if benchmark.stats is not None:  # None with --benchmark-disable
        microseconds = benchmark.stats.stats.median / operations * 1e6
        benchmark.extra_info["us_per_operation"] = round(microseconds, 2)


@BACKENDS
@pytest.mark.benchmark(group="encrypt")
def test_encrypt(benchmark: BenchmarkFixture, bench: Bench, backend: str) -> None:
    cipher, values = bench.cipher(backend), list(range(-COUNT // 2, COUNT // 2))
    assert bench.signed(cipher.encrypt(values).opened().ciphertexts()) == values
    timed(benchmark, COUNT, lambda: cipher.encrypt(values))


@BACKENDS
@pytest.mark.benchmark(group="seal: add plaintexts and re-randomise")
def test_seal(benchmark: BenchmarkFixture, bench: Bench, backend: str) -> None:
    cipher, values = bench.cipher(backend), list(range(COUNT))
    vector = cipher.encrypt(values).opened()
    doubled = [2 * value for value in values]
    assert bench.signed(cipher.seal(vector, values).opened().ciphertexts()) == doubled
    timed(benchmark, COUNT, lambda: cipher.seal(vector, values))


@BACKENDS
@pytest.mark.benchmark(group="add ciphertexts")
def test_add(benchmark: BenchmarkFixture, bench: Bench, backend: str) -> None:
    cipher, values = bench.cipher(backend), list(range(COUNT))
    vector = bench.ours.encrypt(values).opened()
    assert bench.signed(cipher.add(vector, vector).ciphertexts()) == [2 * value for value in values]
    many = CipherVector.joined(cipher.key, [vector] * 10)
    timed(benchmark, 10 * COUNT, lambda: cipher.add(many, many))


@pytest.mark.parametrize("library", ["colonnade", "phe"])
@pytest.mark.benchmark(group="decrypt")
def test_decrypt(benchmark: BenchmarkFixture, bench: Bench, library: str) -> None:
    decrypt = {"colonnade": bench.private.decrypt, "phe": bench.phe_private.raw_decrypt}[library]
    values = list(range(COUNT))
    ciphertexts = bench.ours.encrypt(values).opened().ciphertexts()
    assert [decrypt(ciphertext) for ciphertext in ciphertexts] == values
    timed(benchmark, COUNT, lambda: [decrypt(ciphertext) for ciphertext in ciphertexts])


@pytest.mark.benchmark(group="check received ciphertexts")
def test_parse(benchmark: BenchmarkFixture, bench: Bench) -> None:
    vector = bench.ours.encrypt(list(range(COUNT))).opened()
    key = bench.private.public
    data = bench.ours.seal(vector, [0] * COUNT).to_bytes() * 10
    assert bench.signed(parse_ciphertexts(data, key, None)[:COUNT].ciphertexts()) == list(range(COUNT))
    timed(benchmark, 10 * COUNT, lambda: parse_ciphertexts(data, key, 10 * COUNT))


def _dense(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-4, 4, (rows, columns))


MATRICES = {
    "1000 x 10, |x| < 4, 30 bits": (28, _dense(1000, 10)),
    "1000 x 10, |x| < 4, 52 bits": (50, _dense(1000, 10)),
    "309 x 6, |x| < 4, 34 bits": (32, _dense(309, 6)),
    "1000 x 10, 0 or 1, 32 bits": (32, (_dense(1000, 10) > 0).astype(np.float64)),
}


@BACKENDS
@pytest.mark.parametrize("name", list(MATRICES))
def test_transposed_product(
    benchmark: BenchmarkFixture, bench: Bench, backend: str, name: str, request: pytest.FixtureRequest
) -> None:
    benchmark.group = f"X'[[d]]: {name}"
    scale_bits, real = MATRICES[name]
    matrix = FixedPoint(scale_bits).encode(real)
    values = [int(value) for value in np.random.default_rng(1).integers(-(2**40), 2**40, len(matrix))]
    vector = bench.ours.encrypt(values).opened()
    cipher = bench.cipher(backend)
    product = bench.signed(cipher.transposed_product(matrix, vector).ciphertexts())
    assert product == [sum(int(x) * v for x, v in zip(column, values, strict=True)) for column in matrix.T]
    timed(benchmark, matrix.size, lambda: cipher.transposed_product(matrix, vector), rounds=3)


@pytest.mark.parametrize("library", ["colonnade", "phe"])
@pytest.mark.benchmark(group="make a key")
def test_generate(benchmark: BenchmarkFixture, bench: Bench, library: str) -> None:
    bits = bench.private.public.bits
    generate: Callable[[], Any]
    if library == "colonnade":
        generate = lambda: type(bench.private).generate(bits, bench.ours._entropy)  # noqa: E731
        assert generate().public.bits == bits
    else:
        generate = lambda: phe.generate_paillier_keypair(n_length=bits)  # noqa: E731
        assert generate()[0].n.bit_length() == bits
    timed(benchmark, 1, generate)
