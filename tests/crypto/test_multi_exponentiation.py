"""Xᵀ[[v]] by buckets equals the naive product of powers, whatever the matrix holds."""

from __future__ import annotations

from concurrent.futures import Executor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.crypto import multiexp
from common.crypto.cipher import CipherVector, PaillierCipher
from common.crypto.entropy import SeededEntropy
from common.crypto.multiexp import best_window, signed_digits
from common.errors import LocalProtocolError
from coordinator.private_key import PrivateKey


def naive(cipher: PaillierCipher, matrix: np.ndarray, vector: CipherVector) -> list[int]:
    modulus = cipher.key.modulus_squared
    products = [1] * matrix.shape[1]
    for row, ciphertext in zip(matrix.tolist(), vector.ciphertexts(), strict=True):
        for column, exponent in enumerate(row):
            products[column] = products[column] * pow(ciphertext, int(exponent), modulus) % modulus
    return products


def matrices(rng: np.random.Generator) -> dict[str, np.ndarray]:
    huge = np.array(
        [[int(x) << 70 for x in row] for row in rng.integers(-(2**40), 2**40, (13, 3))], dtype=object
    )
    mixed = huge.copy()
    mixed[::2] = 0
    mixed[1] = [1, -1, 2]
    return {
        "random": rng.integers(-(2**34), 2**34, (40, 4)),
        "positive": rng.integers(1, 2**20, (40, 3)),
        "negative": -rng.integers(1, 2**20, (40, 3)),
        "zero": np.zeros((7, 2), dtype=np.int64),
        "binary": rng.integers(0, 2, (50, 3)),
        "binary at scale": rng.integers(0, 2, (50, 3)) << 32,
        "booleans": rng.integers(0, 2, (9, 2)).astype(bool),
        "small unsigned": rng.integers(0, 200, (9, 2)).astype(np.uint8),
        "large unsigned": np.array([[2**64 - 1, 1], [0, 2**63]], dtype=np.uint64),
        "the ends of int64": np.array([[2**63 - 1, -(2**63)], [-(2**63), 2**63 - 1]]),
        "huge": huge,
        "huge, sparse and mixed": mixed,
        "minus one": np.full((5, 1), -1),
        "one row": np.array([[3, -5, 0, 1]]),
        "column order": np.asfortranarray(rng.integers(-9, 9, (6, 5))),
    }


@pytest.mark.parametrize("name", list(matrices(np.random.default_rng(0))))
def test_buckets_equal_the_naive_product(name: str, cipher: PaillierCipher) -> None:
    matrix = matrices(np.random.default_rng(0))[name]
    vector = cipher.encrypt(list(range(-3, len(matrix) - 3))).opened()
    assert cipher.transposed_product(matrix, vector).ciphertexts() == naive(cipher, matrix, vector)


@given(data=st.data(), rows=st.integers(1, 8), columns=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_decrypted_products_are_integer_products(
    data: st.DataObject, rows: int, columns: int, private_key: PrivateKey, threads: Executor
) -> None:
    entry = st.integers(-(2**100), 2**100) | st.sampled_from([0, 1, -1, 2**63, -(2**63), 2**32])
    draw = st.lists(st.lists(entry, min_size=columns, max_size=columns), min_size=rows, max_size=rows)
    matrix = np.array(data.draw(draw), dtype=object)
    plain = data.draw(st.lists(st.integers(-(2**64), 2**64), min_size=rows, max_size=rows))
    cipher = PaillierCipher(private_key.public, threads, SeededEntropy(b"product"))
    product = cipher.transposed_product(matrix, cipher.encrypt(plain).opened())
    expected = [sum(int(x) * v for x, v in zip(column, plain, strict=True)) for column in matrix.T]
    modulus = private_key.public.modulus
    assert [private_key.decrypt(c) for c in product.ciphertexts()] == [e % modulus for e in expected]


@pytest.mark.parametrize("rows", [3, 4, 5, 8, 11])
@pytest.mark.parametrize("group", [1, 2, 3, 100])
def test_blocks_of_rows_and_groups_of_columns_come_together(
    rows: int, group: int, cipher: PaillierCipher, threads: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiexp, "_ROW_BLOCK", 4)
    monkeypatch.setattr(multiexp, "_TASK_ELEMENTS", group * min(rows, 4))
    matrix = np.random.default_rng(rows).integers(-50, 50, (rows, 5))
    vector = cipher.encrypt(list(range(rows))).opened()
    assert cipher.transposed_product(matrix, vector).ciphertexts() == naive(cipher, matrix, vector)


def test_worker_processes_give_the_same_product(
    cipher: PaillierCipher, private_key: PrivateKey, processes: Executor
) -> None:
    matrix = np.random.default_rng(5).integers(-(2**34), 2**34, (300, 4))
    vector = cipher.encrypt(list(range(300))).opened()
    spread = PaillierCipher(private_key.public, processes, SeededEntropy(b"spread"))
    assert (
        spread.transposed_product(matrix, vector).ciphertexts()
        == cipher.transposed_product(matrix, vector).ciphertexts()
    )


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_an_empty_matrix_gives_empty_sums(shape: tuple[int, int], cipher: PaillierCipher) -> None:
    vector = cipher.encrypt([1] * shape[0]).opened()
    product = cipher.transposed_product(np.zeros(shape, dtype=np.int64), vector)
    assert product.ciphertexts() == [1] * shape[1]


def test_shapes_and_types_that_do_not_fit_are_refused(cipher: PaillierCipher) -> None:
    vector = cipher.encrypt([1, 2]).opened()
    for matrix in (np.ones((3, 1), dtype=np.int64), np.ones(2, dtype=np.int64), np.ones((2, 1))):
        with pytest.raises(LocalProtocolError):
            cipher.transposed_product(matrix, vector)
    with pytest.raises(LocalProtocolError):
        cipher.transposed_product(np.array([[1.5], [2]], dtype=object), vector)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20),
    st.integers(2, 14),
)
def test_signed_digits_add_up_and_stay_in_their_window(values: list[int], window: int) -> None:
    digits = signed_digits(np.array(values, dtype=np.int64), window)
    sums = [sum(int(d) << (window * t) for t, d in enumerate(column)) for column in digits.T]
    assert sums == values or (not digits.size and not any(values))
    if digits.size:
        assert digits.min() >= -(1 << (window - 1))
        assert digits.max() < 1 << (window - 1)


def test_windows_grow_with_the_rows_and_fit_int16() -> None:
    windows = [best_window(rows, 40) for rows in (1, 10, 100, 1_000, 10_000, 10_000_000)]
    assert windows == sorted(windows)
    assert windows[0] >= 2
    assert windows[-1] <= 14


class _Visited(list[int]):
    """A list that notes which of its entries are used; each use is one product."""

    def __init__(self, values: range) -> None:
        super().__init__(values)
        self.visits: list[int] = []

    def __getitem__(self, row: int) -> int:  # type: ignore[override]
        self.visits.append(row)
        return super().__getitem__(row)


def test_a_row_costs_one_product_for_each_digit_that_is_not_zero() -> None:
    bases = _Visited(range(2, 102))
    column = np.array([0, 1] * 50, dtype=np.int64) << 32
    for position in signed_digits(column, 6):
        multiexp._buckets(bases, position, 32, (1 << 61) - 1)
    assert bases.visits == list(range(1, 100, 2))


def test_a_pass_takes_one_inversion(cipher: PaillierCipher, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    invert = multiexp.gmpy2.invert

    class Gmpy2:
        @staticmethod
        def invert(value: int, modulus: int) -> int:
            calls.append(1)
            return invert(value, modulus)

    monkeypatch.setattr(multiexp, "gmpy2", Gmpy2)
    vector = cipher.encrypt([1, 2, 3]).opened()
    cipher.transposed_product(np.array([[1, -1, 5], [-7, 2, -3], [4, -9, 0]]), vector)
    assert len(calls) == 1
