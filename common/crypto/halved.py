"""Ciphertexts as products of a number below N and a power of 1 + N, which makes multiplying them cheaper.

    c = a·(1 + β·N) mod N²         a = c mod N,  β = ((c − a)/N)·a⁻¹ mod N
    c⁻¹ = α·(1 − (k + β)·N)        α = a⁻¹ mod N,  a·α = 1 + k·N

(1 + N)^m = 1 + m·N, so the second factors only add up: a product of many ciphertexts takes one multiplication
by a number half as long for each of them, and one sum of integers. Nothing secret is needed or learnt: β is
not the plaintext, but a known function of c.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import gmpy2
from gmpy2 import mpz


@dataclass(frozen=True, slots=True, eq=False)
class Halved:
    """Ciphertexts under one key, taken apart.

    Attributes:
        modulus: N.
        modulus_squared: N².
        units: a of each.
        inverses: α of each.
        shares: β of each.
        carries: k of each.
    """

    modulus: mpz = field(repr=False)
    modulus_squared: mpz = field(repr=False)
    units: list[mpz] = field(repr=False)
    inverses: list[mpz] = field(repr=False)
    shares: list[mpz] = field(repr=False)
    carries: list[mpz] = field(repr=False)

    def __len__(self) -> int:
        return len(self.units)

    def take(self, rows: Sequence[int]) -> Halved:
        """Return these rows."""
        lists = (self.units, self.inverses, self.shares, self.carries)
        return Halved(self.modulus, self.modulus_squared, *([one[row] for row in rows] for one in lists))

    def whole(self, unit: mpz, share: mpz) -> mpz:
        """Return unit·(1 + share·N) mod N², for any integers."""
        return whole(unit, share, self.modulus, self.modulus_squared)


def halve(ciphertexts: Sequence[mpz], modulus: mpz) -> Halved:
    """Take ciphertexts apart; each coprime to N and below N². One inversion for all of them."""
    high, units = [], []
    for ciphertext in ciphertexts:
        above, unit = divmod(ciphertext, modulus)
        high.append(above)
        units.append(unit)
    opposite = inverses(units, modulus)
    return Halved(
        modulus,
        modulus * modulus,
        units,
        opposite,
        [above * inverse % modulus for above, inverse in zip(high, opposite, strict=True)],
        [unit * inverse // modulus for unit, inverse in zip(units, opposite, strict=True)],
    )


def whole(unit: mpz, share: mpz, modulus: mpz, modulus_squared: mpz) -> mpz:
    """Return unit·(1 + share·N) mod N², for any integers."""
    return (unit + modulus * (unit % modulus * share % modulus)) % modulus_squared


def inverses(values: Iterable[mpz], modulus: mpz) -> list[mpz]:
    """Return every value's inverse with one modular inversion (Montgomery 1987)."""
    values = list(values)
    prefixes = [mpz(1)]
    for value in values:
        prefixes.append(prefixes[-1] * value % modulus)
    suffix = gmpy2.invert(prefixes.pop(), modulus)
    found = []
    for value, prefix in zip(reversed(values), reversed(prefixes), strict=True):
        found.append(suffix * prefix % modulus)
        suffix = suffix * value % modulus
    return found[::-1]
