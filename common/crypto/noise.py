"""Random N-th powers h_s^r from a fixed-base table (Lim, Lee 1994).

The bits of r form a grid of TEETH rows of `blocks`·SQUARINGS bits: bit (i, j, k) stands for

    h_s ^ (2 ^ (i·blocks·SQUARINGS + j·SQUARINGS + k)).

table[j][m] holds the product over the bits i of m of h_s^(2^(i·blocks·SQUARINGS + j·SQUARINGS)), so a power
is Π_k (Π_j table[j][r_jk])^(2^k): one product for each TEETH bits of r, and SQUARINGS - 1 squarings.
"""

from __future__ import annotations

from functools import lru_cache

from gmpy2 import mpz

from common.crypto.entropy import Entropy

# Measured at 2048 bits (benchmarks/micro): 11 x 8 needs 100 products a power, 24,576 entries (13 MB, 0.1 s
# to build). Wider tables save at most 10 % of a power and cost a short job more than they bring.
TEETH = 11
SQUARINGS = 8

_TABLES_KEPT = 4  # 13 MB each; a process serves few jobs at the same time


class NoiseTable:
    """Powers of one key's noise generator, ready to be multiplied."""

    def __init__(self, modulus: int, generator: int) -> None:
        self._modulus_squared = mpz(modulus) * modulus
        # r of |N|/2 bits is what Damgård, Jurik and Nielsen prove enough; the grid rounds it up.
        exponent_bits = (modulus.bit_length() + 1) // 2
        self._blocks = -(-exponent_bits // (TEETH * SQUARINGS))
        self._tables = [self._block(generator, block) for block in range(self._blocks)]

    def _block(self, generator: int, block: int) -> list[mpz]:
        table = [mpz(1)]
        tooth = self._squared(mpz(generator), block * SQUARINGS)
        for _ in range(TEETH):
            table += [entry * tooth % self._modulus_squared for entry in table]
            tooth = self._squared(tooth, self._blocks * SQUARINGS)
        return table

    def _squared(self, value: mpz, times: int) -> mpz:
        for _ in range(times):
            value = value * value % self._modulus_squared
        return value

    def draw(self, entropy: Entropy) -> mpz:
        """Return fresh noise, h_s^r for a uniform r, and never 1."""
        noise = mpz(1)
        while noise == 1:
            noise = self._power(entropy.bits(TEETH * SQUARINGS * self._blocks))
        return noise

    def _power(self, digits: int) -> mpz:
        """Return h_s^r, where r's grid is read from `digits`, TEETH bits at a time."""
        power = mpz(1)
        for _ in range(SQUARINGS):
            power = power * power % self._modulus_squared
            for table in self._tables:
                power = power * table[digits & ((1 << TEETH) - 1)] % self._modulus_squared
                digits >>= TEETH
        return power


@lru_cache(maxsize=_TABLES_KEPT)
def noise_table(modulus: int, generator: int) -> NoiseTable:
    """Return the key's table, built once in each process; it holds public values only."""
    return NoiseTable(modulus, generator)
