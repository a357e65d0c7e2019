"""The private key of a running job: made by C, held in C's memory, never written and never sent."""

from __future__ import annotations

from typing import NoReturn

import gmpy2
from gmpy2 import mpz

from common.crypto.entropy import Entropy, uniform_below
from common.crypto.paillier import PublicKey
from common.crypto.phe_bridge import generate_primes
from common.errors import LocalProtocolError


class PrivateKey:
    """Decrypts under one key, modulo p² and q² apart (Paillier 1999, §7)."""

    __slots__ = ("_halves", "_p_inverse", "public")

    def __init__(self, p: int, q: int, entropy: Entropy) -> None:
        """Make the key from its primes: p ≡ q ≡ 3 mod 4, gcd(p - 1, q - 1) = 2.

        Args:
            p: A prime.
            q: Another prime.
            entropy: Draws the x of the noise generator h_s = (-x²)^N.
        """
        if p == q or p % 4 != 3 or q % 4 != 3 or gmpy2.gcd(p - 1, q - 1) != 2:
            raise LocalProtocolError("the primes do not fit Damgård, Jurik and Nielsen's conditions")
        self.public = PublicKey(p * q, _noise_generator(p * q, entropy))
        self._halves = (_Half(p, q), _Half(q, p))
        self._p_inverse = gmpy2.invert(p, q)

    @classmethod
    def generate(cls, bits: int, entropy: Entropy) -> PrivateKey:
        """Return a new key whose N has exactly `bits` bits; takes about 0.15 s at 2048.

        The primes come from phe, which asks the operating system; `entropy` draws the noise generator.
        """
        return cls(*generate_primes(bits), entropy)

    def decrypt(self, ciphertext: int) -> int:
        """Return the plaintext residue in [0, N) of a ciphertext in (0, N²)."""
        if not 0 < ciphertext < self.public.modulus_squared:
            raise LocalProtocolError("a ciphertext to be decrypted was not checked")
        modulo_p, modulo_q = (half.decrypt(ciphertext) for half in self._halves)
        first, second = self._halves
        return int(modulo_p + first.prime * ((modulo_q - modulo_p) * self._p_inverse % second.prime))

    def __repr__(self) -> str:
        return "PrivateKey(hidden)"

    def __reduce__(self) -> NoReturn:
        raise LocalProtocolError("a private key does not leave the process that made it")


class _Half:
    """Decryption modulo one of the two primes."""

    __slots__ = ("_scale", "_square", "prime")

    def __init__(self, prime: int, other: int) -> None:
        self.prime = mpz(prime)
        self._square = self.prime * self.prime
        # L((1 + N)^(p-1) mod p²) = (p - 1)·q mod p.
        self._scale = gmpy2.invert((self.prime - 1) * other, self.prime)

    def decrypt(self, ciphertext: int) -> mpz:
        """Return the plaintext modulo the prime."""
        # powmod_sec takes the same time and memory accesses for every base: peers choose the ciphertexts and
        # see how long the answer takes.
        power = gmpy2.powmod_sec(mpz(ciphertext) % self._square, self.prime - 1, self._square)
        return (power - 1) // self.prime * self._scale % self.prime

    def __repr__(self) -> str:
        return "_Half(hidden)"


def _noise_generator(modulus: int, entropy: Entropy) -> int:
    """Return h_s = (-x²)^N mod N² for a random unit x."""
    unit = 0
    while gmpy2.gcd(unit, modulus) != 1:
        unit = uniform_below(entropy, modulus)
    root = mpz(-unit * unit % modulus)
    return int(gmpy2.powmod(root, modulus, mpz(modulus) * modulus))
