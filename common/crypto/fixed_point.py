"""Real numbers as integers at one scale for a whole job (PROTOCOLS rule 1.2.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import NumericError
from common.types import Floats

_INT64_LIMIT = 2.0**63


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Encodes x as round(x * 2**scale_bits); products of two encodings are at twice the scale."""

    scale_bits: int

    def encode(self, values: Floats) -> NDArray[Any]:
        """Return integers at the scale, rounded to nearest, in the shape of `values`.

        Returns:
            int64, or Python integers (dtype object) when one of them would not fit.

        Raises:
            NumericError: A value is not finite, or leaves double precision at this scale.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), self.scale_bits))
        if not np.isfinite(scaled).all():
            raise NumericError(
                "a value to be encrypted is not finite", advice="check the step size and the data"
            )
        if scaled.size == 0 or float(np.abs(scaled).max()) < _INT64_LIMIT:
            return scaled.astype(np.int64)
        # A float64 beyond 2**53 is an integer already, so int() is exact.
        return np.array([int(value) for value in scaled.flat], dtype=object).reshape(scaled.shape)

    def encode_wide(self, value: float) -> int:
        """Return `value` at twice the scale, where it can be added to a product of two encodings.

        Raises:
            NumericError: The value is not finite, or leaves double precision at this scale.
        """
        try:
            return round(math.ldexp(value, 2 * self.scale_bits))
        except (OverflowError, ValueError) as error:
            raise NumericError("a value to be encrypted is not finite") from error

    def decode(self, residue: int, modulus: int) -> float:
        """Return the real number that a residue stands for at the single scale, correctly rounded.

        Raises:
            NumericError: The residue lies in the middle third of Z_modulus, which no planned value reaches.
        """
        return _real(_signed(residue, modulus), self.scale_bits)

    def decode_wide(self, residue: int, modulus: int) -> float:
        """Return the real number that a residue stands for at twice the scale, correctly rounded.

        Raises:
            NumericError: The residue lies in the middle third of Z_modulus, which no planned value reaches.
        """
        return _real(_signed(residue, modulus), 2 * self.scale_bits)


def _signed(residue: int, modulus: int) -> int:
    """Return the representative of a residue in (-modulus/3, modulus/3).

    The plan proves |value| < N/3, so the middle third is a guard that an overflow, or an answer from
    somebody who does not hold the right key, hits with probability 1/3 an entry.
    """
    residue %= modulus
    signed = residue - modulus if 2 * residue > modulus else residue
    if 3 * abs(signed) >= modulus:
        raise NumericError(
            "a decrypted value lies outside the range that was proved before the first round",
            advice="the features or weights have grown beyond the declared limits, or the answer is not ours",
        )
    return signed


def _real(signed: int, scale_bits: int) -> float:
    try:
        return signed / (1 << scale_bits)  # int / int rounds correctly at any size
    except OverflowError as error:
        raise NumericError("a decrypted value does not fit a double") from error
