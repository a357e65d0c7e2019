"""Random N-th powers h_s^r from a fixed-base table (Lim, Lee 1994).

Each of TEETH stretches of r is cut into BLOCKS pieces of s_j bits, which differ by one bit at most.
Bit (i, j, k) stands for h_s to the power

    2 ^ (i·(s_0 + s_1 + …) + (s_0 + … + s_(j-1)) + k),    0 ≤ k < s_j.

table[j][m] holds the product over the bits i of m at k = 0, so that

    h_s^r = Π_k (Π_j table[j][r_jk]) ^ (2^k),

one product for each TEETH bits of r, and max s_j - 1 squarings. Drawing the digits r_jk is drawing r.
Entries stand as a·(1 + β·N) (halved.py): a product is one by a, below N, and the β only add up.
"""

from __future__ import annotations

from functools import lru_cache

from gmpy2 import mpz

from common.crypto.entropy import Entropy
from common.crypto.halved import halve, whole
from common.crypto.paillier import PublicKey

# Measured at 2048 bits, two processes a core at the same time, in huge pages (runtime/compute.py): 12 x 8 is
# 19 MB, built in 0.31 s, and a power takes 0.34 ms. 12 x 6 takes 0.24 s and 0.36 ms; 13 x 10 (48 MB) 0.63 s
# and 0.31 ms, which a job of a few thousand powers does not earn back. In small pages all take 0.34 or more.
TEETH = 12
BLOCKS = 8

_TABLES_KEPT = 4  # 19 MB each; a process serves few jobs at the same time


class NoiseTable:
    """Powers of one key's noise generator, ready to be multiplied. Public values only."""

    def __init__(self, key: PublicKey, teeth: int = TEETH, blocks: int = BLOCKS) -> None:
        self._modulus = mpz(key.modulus)
        self._modulus_squared = self._modulus * self._modulus
        self._teeth = teeth
        self._stretch = -(-key.noise_bits // teeth)  # Rounds the exponent up.
        # Pieces have as many bits as there are full rows of digits, the first few of them one more.
        full, longer = divmod(self._stretch, blocks)
        # For every block, a and β of table[j][m] = a·(1 + β·N).
        self._tables = [self._block(key.noise_generator, j * full + min(j, longer)) for j in range(blocks)]
        self._rows = [self._tables[:longer]] * (longer > 0) + [self._tables] * full

    def _block(self, generator: int, first_bit: int) -> tuple[list[mpz], list[mpz]]:
        teeth = [self._squared(mpz(generator), first_bit)]
        for _ in range(1, self._teeth):
            teeth.append(self._squared(teeth[-1], self._stretch))
        one = halve(teeth, self._modulus)
        units, inverses, shares = [mpz(1)], [mpz(1)], [mpz(0)]
        for unit, inverse, share in zip(one.units, one.inverses, one.shares, strict=True):
            # a·a' = q·N + r = r·(1 + q·r⁻¹·N): as cheap as a product modulo N², and taken apart already.
            products = [divmod(entry * unit, self._modulus) for entry in units]
            opposite = [entry * inverse % self._modulus for entry in inverses]
            carried = zip(shares, products, opposite, strict=True)
            shares += [(entry + share + q * r_1) % self._modulus for entry, (q, _), r_1 in carried]
            units += [r for _, r in products]
            inverses += opposite
        # Copied in turns, so that what is looked up together lies together: 7 % of a power is waiting for
        # memory otherwise.
        pairs = [(unit + 0, share + 0) for unit, share in zip(units, shares, strict=True)]
        return [unit for unit, _ in pairs], [share for _, share in pairs]

    def _squared(self, value: mpz, times: int) -> mpz:
        for _ in range(times):
            value = value * value % self._modulus_squared
        return value

    @property
    def exponent_bits(self) -> int:
        """How many random bits a power takes."""
        return self._teeth * self._stretch

    def draw(self, entropy: Entropy) -> mpz:
        """Return fresh noise: h_s^r for a uniform r, and never 1, which would leave a ciphertext as it is."""
        noise = mpz(1)
        while noise == 1:
            noise = self.power(entropy.bits(self.exponent_bits))
        return noise

    def power(self, digits: int) -> mpz:
        """Return h_s^r; `digits` lists the r_jk, of `teeth` bits each, from the highest k to the lowest."""
        low = (1 << self._teeth) - 1
        unit, share = mpz(1), mpz(0)
        for row in self._rows:
            unit, share = unit * unit % self._modulus_squared, 2 * share
            for units, shares in row:
                entry = digits & low
                unit = unit * units[entry] % self._modulus_squared
                share += shares[entry]
                digits >>= self._teeth
        return whole(unit, share, self._modulus, self._modulus_squared)


@lru_cache(maxsize=_TABLES_KEPT)
def noise_table(key: PublicKey) -> NoiseTable:
    """Return the key's table, built once in each process."""
    return NoiseTable(key)
