"""Random N-th powers h_s^r from a fixed-base table (Lim, Lee 1994).

The bits of r form a grid of TEETH x BLOCKS x squarings; bit (i, j, k) stands for h_s to the power

    2 ^ (i·BLOCKS·squarings + j·squarings + k).

table[j][m] holds the product over the bits i of m at k = 0, so that

    h_s^r = Π_k (Π_j table[j][r_jk]) ^ (2^k),

one product for each TEETH bits of r, and squarings - 1 squarings. Drawing the digits r_jk is drawing r.
"""

from __future__ import annotations

from functools import lru_cache

from gmpy2 import mpz

from common.crypto.entropy import Entropy

# Measured at 2048 bits on one core (benchmarks/micro/test_noise_shapes.py): 12 x 6 is 12 MB, built in 0.13 s,
# and a power takes 0.50 ms. Plain windows of 8 bits take 0.6 s to build and 0.64 ms a power; 13 x 10 takes
# 0.44 ms, but 40 MB and 0.4 s to build, which a job of a few thousand powers does not earn back.
TEETH = 12
BLOCKS = 6

_TABLES_KEPT = 4  # 12 MB each; a process serves few jobs at the same time


class NoiseTable:
    """Powers of one key's noise generator, ready to be multiplied. Public values only."""

    def __init__(self, modulus: int, generator: int, teeth: int = TEETH, blocks: int = BLOCKS) -> None:
        self._modulus_squared = mpz(modulus) * modulus
        self._teeth = teeth
        # r of |N|/2 bits is what Damgård, Jurik and Nielsen prove enough; the grid rounds it up.
        exponent_bits = (modulus.bit_length() + 1) // 2
        self._squarings = -(-exponent_bits // (teeth * blocks))
        self._tables = [self._block(generator, block, blocks) for block in range(blocks)]

    def _block(self, generator: int, block: int, blocks: int) -> list[mpz]:
        table = [mpz(1)]
        tooth = self._squared(mpz(generator), block * self._squarings)
        for i in range(self._teeth):
            if i:
                tooth = self._squared(tooth, blocks * self._squarings)
            table += [entry * tooth % self._modulus_squared for entry in table]
        return table

    def _squared(self, value: mpz, times: int) -> mpz:
        for _ in range(times):
            value = value * value % self._modulus_squared
        return value

    @property
    def exponent_bits(self) -> int:
        """How many random bits a power takes."""
        return self._teeth * len(self._tables) * self._squarings

    def draw(self, entropy: Entropy) -> mpz:
        """Return fresh noise: h_s^r for a uniform r, and never 1, which would leave a ciphertext as it is."""
        noise = mpz(1)
        while noise == 1:
            noise = self.power(entropy.bits(self.exponent_bits))
        return noise

    def power(self, digits: int) -> mpz:
        """Return h_s^r; `digits` lists the r_jk, of `teeth` bits each, from the highest k to the lowest."""
        low = (1 << self._teeth) - 1
        power = mpz(1)
        for _ in range(self._squarings):
            power = power * power % self._modulus_squared
            for table in self._tables:
                power = power * table[digits & low] % self._modulus_squared
                digits >>= self._teeth
        return power


@lru_cache(maxsize=_TABLES_KEPT)
def noise_table(modulus: int, generator: int) -> NoiseTable:
    """Return the key's table, built once in each process."""
    return NoiseTable(modulus, generator)
