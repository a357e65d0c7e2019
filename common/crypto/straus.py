"""Π_i c_i^(e_i) for few bases with long exponents (Straus 1964), by sliding windows of signed odd digits.

One chain of squarings serves all bases: as many as the longest exponent has bits. Every base adds a table of
its odd powers and a product for each digit, one in (window + 1) bits. Buckets need many bases to beat that.

Residues modulo N² stand as two digits to the base N: a = low + N·high. A square needs low² whole, 2·low·high
modulo N, and two short divisions instead of a long one, a quarter less time; a product an eighth less.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, TypeAlias

import gmpy2
from gmpy2 import mpz
from numpy.typing import NDArray

from common.crypto.fanout import in_order
from common.crypto.multiexp import inverses
from common.errors import LocalProtocolError

# Up to this many rows a column's exponentiation is cheaper here than with buckets.
MOST_BASES = 48
_WINDOWS = range(2, 9)

Task: TypeAlias = tuple[bytes, bytes, list[int]]
Digits: TypeAlias = tuple[mpz, mpz]


def few_base_powers(
    executor: Executor, matrix: NDArray[Any], content: bytes, modulus_squared: bytes
) -> list[int]:
    """Return Π_i c_i^(matrix[i, j]) mod N² for every column j.

    Args:
        executor: Works on columns.
        matrix: Integers (n, d) of either sign and any size.
        content: n ciphertexts, big-endian, as wide as N², coprime to N.
        modulus_squared: N², big-endian.
    """
    if matrix.dtype.kind not in "biuO" or any(isinstance(value, float) for value in matrix.flat):
        raise LocalProtocolError("exponents must be integers")
    tasks = ((content, modulus_squared, [int(value) for value in column]) for column in matrix.T)
    return list(in_order(executor, _power, tasks))


def _power(task: Task) -> int:
    content, modulus_squared, exponents = task
    width = len(modulus_squared)
    modulus = mpz(int.from_bytes(modulus_squared, "big"))
    bases = [int.from_bytes(content[at : at + width], "big") for at in range(0, len(content), width)]
    used = [(base, exponent) for base, exponent in zip(bases, exponents, strict=True) if exponent]
    return int(
        product_of_powers([mpz(base) for base, _ in used], [exponent for _, exponent in used], modulus)
    )


def product_of_powers(bases: Sequence[mpz], exponents: Sequence[int], squared: mpz) -> mpz:
    """Return Π bases[i]^exponents[i] mod N²; exponents of either sign, bases invertible."""
    if not bases:
        return mpz(1)
    modulus = gmpy2.isqrt(squared)
    window = _best_window(max(abs(exponent).bit_length() for exponent in exponents))
    # What is to be multiplied in when the squarings have come down to a bit.
    due: dict[int, list[Digits]] = {}
    for base, inverse, exponent in zip(bases, inverses(bases, squared), exponents, strict=True):
        digits = _signed_odd_digits(exponent, window)
        # A power of two, for instance, needs no power of the base but the base.
        above = _odd_powers(base, max((digit for _, digit in digits), default=0), modulus)
        below = _odd_powers(inverse, max((-digit for _, digit in digits), default=0), modulus)
        for bit, digit in digits:
            due.setdefault(bit, []).append(above[digit >> 1] if digit > 0 else below[-digit >> 1])
    low, high = mpz(1), mpz(0)
    for bit in range(max(due, default=-1), -1, -1):
        carry, square = divmod(low * low, modulus)
        low, high = square, (2 * low * high + carry) % modulus
        for power in due.get(bit, ()):
            low, high = _product((low, high), power, modulus)
    return low + modulus * high


def _product(one: Digits, other: Digits, modulus: mpz) -> Digits:
    carry, low = divmod(one[0] * other[0], modulus)
    return low, (one[0] * other[1] + one[1] * other[0] + carry) % modulus


def _best_window(bits: int) -> int:
    # 2^(w−2) odd powers to be made, of both signs, and a product for every w + 1 bits.
    return min(_WINDOWS, key=lambda window: (1 << (window - 1)) + bits / (window + 1))


def _odd_powers(base: mpz, largest: int, modulus: mpz) -> list[Digits]:
    """Return base^1, base^3, base^5, … up to the largest that is needed."""
    high, low = divmod(base, modulus)
    powers = [(low, high)]
    if largest > 1:
        square = _product(powers[0], powers[0], modulus)
        for _ in range(largest // 2):
            powers.append(_product(powers[-1], square, modulus))
    return powers


def _signed_odd_digits(exponent: int, window: int) -> list[tuple[int, int]]:
    """Return (bit, digit) with exponent = Σ digit·2^bit, digits odd and below 2^(window−1) in size."""
    size, half, bit = 1 << window, 1 << (window - 1), 0
    digits: list[tuple[int, int]] = []
    while exponent:
        # Two's complement of a negative integer ends in as many zeros as the integer itself.
        zeros = (exponent & -exponent).bit_length() - 1
        exponent >>= zeros
        bit += zeros
        digit = exponent & (size - 1)
        digit -= size if digit >= half else 0
        digits.append((bit, digit))
        exponent -= digit
    return digits
