"""Xᵀ[[v]] by buckets equals the naive product of powers, whatever the matrix holds."""

from __future__ import annotations

from concurrent.futures import Executor

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from common.crypto import halved as halved_module
from common.crypto import multiexp
from common.crypto.cipher import CipherVector, PaillierCipher
from common.crypto.entropy import SeededEntropy
from common.crypto.halved import Halved, halve
from common.crypto.multiexp import best_window, signed_digits, transposed_powers
from common.crypto.private_key import PrivateKey
from common.errors import LocalProtocolError
from common.runtime.compute import InProcessExecutor


def naive(cipher: PaillierCipher, matrix: np.ndarray, vector: CipherVector) -> list[int]:
    modulus = cipher.key.modulus_squared
    products = [1] * matrix.shape[1]
    for row, ciphertext in zip(matrix.tolist(), vector.ciphertexts(), strict=True):
        for column, exponent in enumerate(row):
            products[column] = products[column] * pow(ciphertext, int(exponent), modulus) % modulus
    return products


def by_buckets(cipher: PaillierCipher, matrix: np.ndarray, vector: CipherVector) -> list[int]:
    """Take the bucket method for a few rows too, where the cipher would choose another one."""
    squared = cipher.key.modulus_squared.to_bytes(cipher.key.ciphertext_bytes, "big")
    return transposed_powers(cipher._executor, matrix, vector._content, squared)


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
    expected = naive(cipher, matrix, vector)
    assert by_buckets(cipher, matrix, vector) == expected
    assert cipher.transposed_product(matrix, vector).ciphertexts() == expected


@given(data=st.data(), rows=st.integers(1, 8), columns=st.integers(1, 3))
@settings(max_examples=40)
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
@pytest.mark.parametrize("workers", [1, 2, 3, 100])
def test_blocks_of_rows_and_groups_of_columns_come_together(
    rows: int, workers: int, private_key: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiexp, "_ROW_BLOCK", 4)
    monkeypatch.setattr(multiexp, "_TASK_ELEMENTS", 2)
    executor = InProcessExecutor()
    executor.workers = workers
    cipher = PaillierCipher(private_key.public, executor, SeededEntropy(b"blocks"))
    matrix = np.random.default_rng(rows).integers(-50, 50, (rows, 5))
    vector = cipher.encrypt(list(range(rows))).opened()
    assert by_buckets(cipher, matrix, vector) == naive(cipher, matrix, vector)


@pytest.mark.parametrize("rows", [1, 7, 309, 8192, 8193, 100_000])
@pytest.mark.parametrize("columns", [1, 3, 40])
@pytest.mark.parametrize("workers", [1, 2, 16])
def test_shares_cover_the_matrix_and_keep_every_worker_busy(rows: int, columns: int, workers: int) -> None:
    block, group = multiexp._shares(rows, columns, 30, workers)
    tasks = -(-rows // block) * -(-columns // group)
    assert 1 <= block <= multiexp._ROW_BLOCK
    assert 1 <= group <= columns
    assert tasks >= min(workers, columns, rows * columns // multiexp._TASK_ELEMENTS)


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
    st.integers(1, 14),
)
def test_signed_digits_add_up_and_stay_in_their_window(values: list[int], window: int) -> None:
    digits = signed_digits(np.array(values, dtype=np.int64), window)
    assert [sum(int(d) << (window * t) for t, d in enumerate(column)) for column in digits.T] == values
    longest = max(abs(value).bit_length() for value in values)
    assert len(digits) == -(-longest // window)
    for position in digits[:-1]:
        assert position.min() >= -(1 << (window - 1))
        assert position.max() < 1 << (window - 1)
    assert np.abs(digits).max(initial=0) <= 1 << window


def test_windows_grow_with_the_rows_and_fit_int16() -> None:
    windows = [best_window(rows, 42) for rows in (1, 10, 100, 1_000, 10_000, 10_000_000)]
    assert windows == sorted(windows)
    assert windows[0] >= 1
    assert windows[-1] <= 14


class _Counted:
    """A number that counts the products it takes part in."""

    products = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def __mul__(self, other: _Counted) -> _Counted:
        _Counted.products += 1
        return _Counted(self.value * other.value)

    def __mod__(self, modulus: int) -> _Counted:
        return _Counted(self.value % modulus)


def test_a_row_costs_less_than_one_product_for_each_digit_that_is_not_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_Counted, "products", 0)
    modulus = (1 << 61) - 1
    bases = [_Counted(value) for value in range(2, 402)]
    digits = np.array([0, 1, -2, 3] * 50, dtype=np.int16)
    buckets = multiexp._buckets(bases, digits, modulus)
    assert [size for size, _ in buckets] == [3, 2, 1]
    expected = 1
    for row in range(1, 200, 4):
        expected = expected * (row + 2) % modulus
    assert buckets[-1][1].value % modulus == expected
    assert _Counted.products == 3 * 49


@pytest.mark.parametrize("values", [[0, 1], [-5, 7], [1, 2, 3, 4], [3]])
def test_a_column_with_few_values_costs_one_product_a_row(
    values: list[int], cipher: PaillierCipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = np.random.default_rng(3).choice(np.array(values) * (2**31 - 1), (400, 1))
    vector = cipher.encrypt(list(range(400))).opened()
    expected = naive(cipher, column, vector)
    buckets = multiexp._bucket_power
    lengths = []

    def counted(rows: Halved, exponents: np.ndarray, bits: int) -> mpz:
        lengths.append(len(rows))
        return buckets(rows, exponents, bits)

    monkeypatch.setattr(multiexp, "_bucket_power", counted)
    assert by_buckets(cipher, column, vector) == expected
    assert lengths == [len(set(column.flat) - {0})]


@given(numbers=st.lists(st.integers(1, 2**512), min_size=1, max_size=6))
def test_halved_ciphertexts_are_the_ciphertexts(numbers: list[int], private_key: PrivateKey) -> None:
    key = private_key.public
    ciphertexts = [mpz(number % key.modulus_squared) for number in numbers]
    if any(gmpy2.gcd(ciphertext, key.modulus) != 1 for ciphertext in ciphertexts):
        return
    halved = halve(ciphertexts, mpz(key.modulus))
    for row, ciphertext in enumerate(ciphertexts):
        assert halved.units[row] < key.modulus
        assert halved.whole(halved.units[row], halved.shares[row]) == ciphertext
        inverse = halved.whole(halved.inverses[row], -halved.carries[row] - halved.shares[row])
        assert inverse * ciphertext % key.modulus_squared == 1


def test_a_task_takes_one_inversion(cipher: PaillierCipher, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    invert = halved_module.gmpy2.invert

    class Gmpy2:
        @staticmethod
        def invert(value: int, modulus: int) -> int:
            calls.append(1)
            return invert(value, modulus)

    monkeypatch.setattr(halved_module, "gmpy2", Gmpy2)
    matrix = np.random.default_rng(1).integers(-(2**20), 2**20, (60, 3))
    by_buckets(cipher, matrix, cipher.encrypt(list(range(60))).opened())
    assert len(calls) == 1
