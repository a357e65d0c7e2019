"""Xᵀ[[v]] as bucket multi-exponentiations (Pippenger 1976; Bernstein et al. 2012, §4) on halved ciphertexts.

A column's exponents are cut into signed digits of `window` bits. For each digit position, rows with the same
digit are multiplied into one bucket, so a row costs one product a position whatever the digit, and none if it
is zero; negative digits use the row's inverse, so that both signs share the buckets. Two running products
turn the buckets into Π bucket_k^k, and `window` squarings lead to the next position.

Every product has one factor below N instead of N² (halved.py), which makes it 40 % cheaper. A column with few
different values, a binary one for instance, is first multiplied together value by value.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from itertools import pairwise
from operator import mul
from typing import Any, TypeAlias

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from common.crypto.fanout import in_order, worker_count
from common.crypto.halved import Halved, halve, inverses
from common.errors import LocalProtocolError

__all__ = ["best_window", "column_cost", "element_cost", "inverses", "signed_digits", "transposed_powers"]

# Rows that one task works on at most: 8 MB of ciphertexts at 2048 bits. Blocks bound what is in flight; half
# as many rows would take some 10 % more time.
_ROW_BLOCK = 16_384
# Less than this is not worth a task of its own: about 5 ms at 2048 bits, against 1 ms to ship it.
_TASK_ELEMENTS = 300
_WINDOWS = range(1, 15)  # 14 bits are the best choice beyond a million rows; digits fit int16

# Costs in products of two residues modulo N², measured at 2048 and 3072 bits (benchmarks/micro).
_BASE_COST = 0.57  # a bucket times a halved base
_SQUARE_COST = 0.87
_HALVING_COST = 2.0  # of one ciphertext, its inverse included

# Exponents (rows, columns), the rows' ciphertexts, and N.
Task: TypeAlias = tuple[NDArray[Any], bytes, int]


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
    if not rows:
        return [1] * columns
    block, group = _shares(rows, columns, _bits(exponents), worker_count(executor))
    firsts = range(0, columns, group)
    squared = mpz(int.from_bytes(modulus_squared, "big"))
    powers = [mpz(1)] * columns
    tasks = _tasks(exponents, content, int(gmpy2.isqrt(squared)), (block, group))
    for number, part in enumerate(in_order(executor, _powers, tasks)):
        for column, power in enumerate(part, start=firsts[number % len(firsts)]):
            powers[column] = powers[column] * power % squared
    return [int(power) for power in powers]


def signed_digits(column: NDArray[Any], window: int) -> NDArray[np.int16]:
    """Return digits (positions, n) with column = Σ_t digits[t]·2^(window·t).

    Each digit lies in [-2^(w-1), 2^(w-1)), but for the last position, which lies in [-2^w, 2^w]: with that,
    there are no more positions than the largest exponent has windows.
    """
    base, half = 1 << window, 1 << (window - 1)
    positions = -(-_bits(column) // window)
    rest, digits = column, []
    for _ in range(positions - 1):
        low = rest & (base - 1)
        carry = (low >= half).astype(rest.dtype)
        digits.append((low - carry * base).astype(np.int16))
        rest = (rest >> window) + carry
    if positions:
        digits.append(rest.astype(np.int16))
    return np.array(digits, dtype=np.int16).reshape(positions, len(column))


def best_window(rows: int, bits: int) -> int:
    """Return the digit width with the fewest products for `rows` exponents of `bits` bits."""
    return min(_WINDOWS, key=lambda window: _cost(rows, bits, window))


def element_cost(rows: int, columns: int, bits: int) -> float:
    """Return the cost of an element of a dense matrix at one worker, in products of two residues modulo N².

    Of the method's own products, and of taking the ciphertexts apart; nothing for moving data about.
    """
    block, group = _shares(rows, columns, bits, 1)
    return _HALVING_COST / group + column_cost(block, bits) / block


def column_cost(rows: int, bits: int) -> float:
    """Return the cost of a column of `rows` different exponents, in products of two residues modulo N²."""
    return _cost(rows, bits, best_window(rows, bits))


def _cost(rows: int, bits: int, window: int) -> float:
    positions = -(-bits // window)
    top = bits - window * (positions - 1)
    # Each position but the last has 2^(window-1) buckets, with two running products a bucket.
    buckets = (positions - 1) * (1 << (window - 1)) + (1 << top)
    filling = rows * (1 - 1 / (1 << window))
    return positions * (_BASE_COST * filling + _SQUARE_COST * window) + 2 * buckets


def _bits(exponents: NDArray[Any]) -> int:
    """Return the length of the largest exponent; of a power of two below zero, one less than its own."""
    if not exponents.size:
        return 0
    return max(int(exponents.max()).bit_length(), (-int(exponents.min())).bit_length())


def _shares(rows: int, columns: int, bits: int, workers: int) -> tuple[int, int]:
    """Return rows and columns of a task, such that the workers are done soonest.

    Splitting rows fills the buckets less; splitting columns halves the same ciphertexts again.
    """
    most = max(1, min(workers, rows * columns // _TASK_ELEMENTS))

    def soonest(groups: int) -> float:
        block, group = _share(rows, columns, most, groups)
        tasks = -(-rows // block) * -(-columns // group)
        return -(-tasks // most) * (_HALVING_COST * block + group * column_cost(block, max(1, bits)))

    return _share(rows, columns, most, min(range(1, min(most, columns) + 1), key=soonest))


def _share(rows: int, columns: int, tasks: int, groups: int) -> tuple[int, int]:
    blocks = max(-(-tasks // groups), -(-rows // _ROW_BLOCK))
    return -(-rows // blocks), -(-columns // groups)


def _integers(matrix: NDArray[Any]) -> NDArray[Any]:
    if matrix.dtype.kind in "bi" or (matrix.dtype.kind == "u" and matrix.dtype.itemsize < 8):
        return matrix.astype(np.int64)
    if matrix.dtype.kind not in "uO" or any(not isinstance(value, int | np.integer) for value in matrix.flat):
        raise LocalProtocolError("exponents must be integers")
    return np.array([int(value) for value in matrix.flat], dtype=object).reshape(matrix.shape)


def _tasks(exponents: NDArray[Any], content: bytes, modulus: int, share: tuple[int, int]) -> Iterator[Task]:
    """Yield the work block by block of rows, and within a block in groups of columns."""
    block, group = share
    width = len(content) // len(exponents)
    for row in range(0, len(exponents), block):
        # The columns' tasks share one copy of the block.
        part = content[row * width : (row + block) * width]
        for first in range(0, exponents.shape[1], group):
            yield exponents[row : row + block, first : first + group], part, modulus


def _powers(task: Task) -> list[int]:
    """Return Π_i c_i^(x_i) for every column of the task."""
    exponents, content, modulus = task
    width = len(content) // len(exponents)
    view = memoryview(content)
    ciphertexts = [mpz(int.from_bytes(view[at : at + width], "big")) for at in range(0, len(view), width)]
    rows = halve(ciphertexts, mpz(modulus))
    return [int(_column_power(rows, column)) for column in exponents.T]


def _column_power(rows: Halved, column: NDArray[Any]) -> mpz:
    """Return Π_i c_i^(x_i): directly, or value by value when that takes fewer products."""
    (used,) = np.nonzero(column)
    if not used.size:
        return mpz(1)
    column = column[used]
    if used.size < len(rows):
        rows = rows.take(used.tolist())
    zeros = _common_zeros(column)
    column = column >> zeros
    values, which = np.unique(column, return_inverse=True)
    bits = _bits(column)
    alone = column_cost(len(values), bits) + _HALVING_COST * len(values)
    if _BASE_COST * (len(column) - len(values)) + alone < column_cost(len(column), bits):
        rows, column = halve(_products_by_value(rows, which, len(values)), rows.modulus), values
    power = _bucket_power(rows, column, bits)
    for _ in range(zeros):
        power = power * power % rows.modulus_squared
    return power


def _common_zeros(column: NDArray[Any]) -> int:
    """Return how many times 2 divides every exponent: integers at a fixed-point scale share its zeros."""
    together = int(np.bitwise_or.reduce(column))
    return (together & -together).bit_length() - 1


def _products_by_value(rows: Halved, which: NDArray[Any], values: int) -> list[mpz]:
    """Return for each value the product of the rows that have it."""
    shares = [mpz(0)] * values
    for value, share in zip(which.tolist(), rows.shares, strict=True):
        shares[value] += share
    order = np.argsort(which, kind="stable")
    starts = np.searchsorted(which[order], np.arange(values + 1)).tolist()
    grouped = [rows.units[row] for row in order.tolist()]
    products = (_product(grouped[start:stop], rows.modulus_squared) for start, stop in pairwise(starts))
    return [rows.whole(product, share) for product, share in zip(products, shares, strict=True)]


def _bucket_power(rows: Halved, column: NDArray[Any], bits: int) -> mpz:
    """Return Π_i c_i^(x_i) = (Π_i a_i^(x_i)) · (1 + N·Σ_i x_i·β_i), the first part by buckets."""
    window = best_window(len(rows), bits)
    modulus = rows.modulus_squared
    digits = signed_digits(column, window)
    bases = rows.units + rows.inverses
    power = mpz(1)
    for position in digits[::-1]:
        for _ in range(window):
            power = power * power % modulus
        power = power * _weighted(_buckets(bases, position, modulus), modulus) % modulus
    share = sum(map(mul, rows.shares, column.tolist()), mpz(0))
    below = _below_zero(digits, window, bits)
    return rows.whole(power, share - sum(map(mul, rows.carries, below.tolist()), mpz(0)))


def _below_zero(digits: NDArray[np.int16], window: int, bits: int) -> NDArray[Any]:
    """Return for each row Σ_t max(0, -digit_t)·2^(window·t): how often its inverse is taken."""
    total: NDArray[Any] = np.zeros(digits.shape[1], dtype=np.int64 if bits < 62 else object)
    for position in digits[::-1]:
        total = (total << window) + np.maximum(-position.astype(np.int64), 0)
    return total


def _buckets(bases: list[mpz], position: NDArray[np.int16], modulus: mpz) -> list[tuple[int, mpz]]:
    """Return, from the highest down, each digit's size and the product of its rows, or of their inverses."""
    (rows,) = np.nonzero(position)
    sizes = np.abs(position[rows].astype(np.int64))
    order = np.argsort(sizes, kind="stable")
    rows, sizes = rows[order], sizes[order]
    factors = [bases[row] for row in np.where(position[rows] > 0, rows, rows + len(position)).tolist()]
    found, starts = np.unique(sizes, return_index=True)
    edges = pairwise([*starts.tolist(), len(factors)])
    return [
        (size, _product(factors[start:stop], modulus))
        for size, (start, stop) in zip(found.tolist(), edges, strict=False)
    ][::-1]


def _product(factors: list[mpz], modulus: mpz) -> mpz:
    """Return the product of factors below N. Two of them need no reduction before they meet the others."""
    pairs = list(map(mul, factors[::2], factors[1::2]))
    if len(factors) % 2:
        pairs.append(factors[-1])
    product = pairs[0]
    for pair in pairs[1:]:
        product = product * pair % modulus
    return product


def _weighted(buckets: list[tuple[int, mpz]], modulus: mpz) -> mpz:
    """Return Π bucket^size by two running products, highest bucket first; empty ones cost one each."""
    running, product, reached = mpz(1), mpz(1), 0
    for size, bucket in buckets:
        for _ in range(reached - size):
            product = product * running % modulus
        running, reached = running * bucket % modulus, size
    for _ in range(reached):
        product = product * running % modulus
    return product
