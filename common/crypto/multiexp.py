"""Xᵀ[[v]] as bucket multi-exponentiations (Pippenger 1976; Bernstein et al. 2012, §4).

A column's exponents are cut into signed digits of `window` bits. For each digit position, rows with the same
digit are multiplied into one bucket, so a row costs one product a position whatever the digit, and none if it
is zero. Two running products turn the buckets into Π bucket_k^k, and `window` squarings lead to the next
position. Negative digits go to buckets of their own; the two sides meet in one division at the very end, for
all columns with a single modular inversion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from typing import Any, TypeAlias

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from common.crypto.fanout import in_order
from common.errors import LocalProtocolError

# Rows that one task works on: 1 MB of ciphertexts at 2048 bits. Blocks bound what is in flight; larger ones
# would save some 5 % of the products.
_ROW_BLOCK = 2048
# Elements that make a task worth shipping: about 10 ms at 2048 bits, against 1 ms to ship it.
_TASK_ELEMENTS = 400
_WINDOWS = range(2, 15)  # 14 bits are the best choice beyond a million rows; digits fit int16

# The ciphertexts of a block of rows, N², and for every column of the task its window and its digits,
# int16 (positions, rows), as bytes.
Task: TypeAlias = tuple[bytes, bytes, list[tuple[int, bytes]]]


def transposed_powers(
    executor: Executor, matrix: NDArray[Any], content: bytes, modulus_squared: bytes
) -> list[int]:
    """Return Π_i c_i^(matrix[i, j]) mod N² for every column j.

    Args:
        executor: Works on blocks of rows and groups of columns.
        matrix: Integers (n, d) of either sign and any size (int64 or Python integers).
        content: n ciphertexts, big-endian, as wide as N², coprime to N.
        modulus_squared: N², big-endian.
    """
    exponents = _integers(matrix)
    rows, columns = exponents.shape
    modulus = mpz(int.from_bytes(modulus_squared, "big"))
    positive, negative = [mpz(1)] * columns, [mpz(1)] * columns
    group = max(1, _TASK_ELEMENTS // max(1, min(rows, _ROW_BLOCK)))
    tasks = _tasks(exponents, content, modulus_squared, group)
    for number, sides in enumerate(in_order(executor, _powers, tasks)):
        first = number * group % (-(-columns // group) * group)
        for column, (above, below) in enumerate(sides, start=first):
            positive[column] = positive[column] * above % modulus
            negative[column] = negative[column] * below % modulus
    inverses = _inverses(negative, modulus)
    return [int(above * inverse % modulus) for above, inverse in zip(positive, inverses, strict=True)]


def signed_digits(column: NDArray[Any], window: int) -> NDArray[np.int16]:
    """Return digits (positions, n) with column = Σ_t digits[t]·2^(window·t), each in [-2^(w-1), 2^(w-1))."""
    base, half = 1 << window, 1 << (window - 1)
    rest = column
    positions = []
    while rest.any():
        low = rest & (base - 1)
        carry = (low >= half).astype(rest.dtype)
        positions.append((low - carry * base).astype(np.int16))
        rest = (rest >> window) + carry
    return np.array(positions, dtype=np.int16).reshape(len(positions), len(column))


def best_window(rows: int, bits: int) -> int:
    """Return the digit width with the fewest products for `rows` exponents of `bits` bits."""

    def products(window: int) -> float:
        positions = bits // window + 1
        filling = rows * (1 - 1 / (1 << window))
        # Each of the two signs has 2^(window-1) buckets, with two running products a bucket.
        return positions * (filling + (2 << window) + 2 * window)

    return min(_WINDOWS, key=products)


def _integers(matrix: NDArray[Any]) -> NDArray[Any]:
    if matrix.dtype.kind in "bi" or (matrix.dtype.kind == "u" and matrix.dtype.itemsize < 8):
        return matrix.astype(np.int64)
    if matrix.dtype.kind not in "uO" or any(not isinstance(value, int | np.integer) for value in matrix.flat):
        raise LocalProtocolError("exponents must be integers")
    return np.array([int(value) for value in matrix.flat], dtype=object).reshape(matrix.shape)


def _tasks(exponents: NDArray[Any], content: bytes, modulus_squared: bytes, group: int) -> Iterator[Task]:
    """Yield the work block by block of rows, and within a block in groups of columns."""
    width = len(modulus_squared)
    rows, columns = exponents.shape
    for row in range(0, rows, _ROW_BLOCK):
        # The columns' tasks share one copy of the block.
        block = content[row * width : (row + _ROW_BLOCK) * width]
        for first in range(0, columns, group):
            part = exponents[row : row + _ROW_BLOCK, first : first + group]
            yield block, modulus_squared, [_column(column) for column in part.T]


def _column(column: NDArray[Any]) -> tuple[int, bytes]:
    bits = max(int(column.max()).bit_length(), int(column.min()).bit_length())
    window = best_window(int(np.count_nonzero(column)), bits)
    return window, signed_digits(column, window).tobytes()


def _powers(task: Task) -> list[tuple[int, int]]:
    """Return, for every column of the task, the products over the positive and over the negative digits."""
    content, modulus_squared, columns = task
    width = len(modulus_squared)
    modulus = mpz(int.from_bytes(modulus_squared, "big"))
    view = memoryview(content)
    bases = [mpz(int.from_bytes(view[at : at + width], "big")) for at in range(0, len(view), width)]
    return [_column_powers(bases, window, digits, modulus) for window, digits in columns]


def _column_powers(bases: list[mpz], window: int, digits: bytes, modulus: mpz) -> tuple[int, int]:
    above, below = mpz(1), mpz(1)
    for position in np.frombuffer(digits, dtype=np.int16).reshape(-1, len(bases))[::-1]:
        for _ in range(window):
            above, below = above * above % modulus, below * below % modulus
        buckets = _buckets(bases, position, 1 << (window - 1), modulus)
        half = len(buckets) // 2
        above = above * _weighted(buckets[half + 1 :], modulus) % modulus
        below = below * _weighted(buckets[:half][::-1], modulus) % modulus
    return int(above), int(below)


def _buckets(bases: list[mpz], position: NDArray[np.int16], half: int, modulus: mpz) -> list[mpz]:
    """Return for each digit -half … half the product of the rows that have it; one product a row."""
    buckets = [mpz(1)] * (2 * half + 1)
    (rows,) = np.nonzero(position)
    for row, digit in zip(rows.tolist(), position[rows].tolist(), strict=True):
        buckets[half + digit] = buckets[half + digit] * bases[row] % modulus
    return buckets


def _weighted(buckets: list[mpz], modulus: mpz) -> mpz:
    """Return Π_k buckets[k - 1]^k by two running products from the last bucket down."""
    running, product = mpz(1), mpz(1)
    for bucket in reversed(buckets):
        running = running * bucket % modulus
        product = product * running % modulus
    return product


def _inverses(values: Iterable[mpz], modulus: mpz) -> list[mpz]:
    """Return every value's inverse with one modular inversion (Montgomery 1987)."""
    values = list(values)
    prefixes = [mpz(1)]
    for value in values:
        prefixes.append(prefixes[-1] * value % modulus)
    suffix = gmpy2.invert(prefixes.pop(), modulus)
    inverses = []
    for value, prefix in zip(reversed(values), reversed(prefixes), strict=True):
        inverses.append(suffix * prefix % modulus)
        suffix = suffix * value % modulus
    return inverses[::-1]
