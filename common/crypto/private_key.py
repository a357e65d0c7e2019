"""The private key of a running job: in the memory of the process that made it, never written, never sent.

C holds one; with VFB²'s `theta: encrypted` a dominator holds its own. import-linter says who may import this.

Peers choose ciphertexts and see how long the answers take. So every ciphertext is multiplied with an
encryption of zero that nobody knows before it is raised to a secret power (Kocher 1996, §10). Its
plaintext stays, and the time says nothing that a sender could relate to what it sent. That costs two
products, and leaves free how to raise to a power: `powmod_base_list` is 1.4 times faster than the
constant-time `powmod_sec`, and it alone lets other threads run. The key does not even go to worker
processes of ours.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import gmpy2
from gmpy2 import mpz

from common.crypto.entropy import Entropy, uniform_below
from common.crypto.paillier import PublicKey
from common.crypto.phe_bridge import generate_primes
from common.errors import LocalProtocolError

# Exponentiations that are worth a thread of their own, about 5 ms at 2048 bits; and how many threads at most.
_PER_THREAD = 4
_MOST_THREADS = 16


class PrivateKey:
    """Decrypts under one key, modulo p² and q² apart (Paillier 1999, §7)."""

    __slots__ = ("_blind", "_blinding", "_halves", "_p_inverse", "public")

    def __init__(self, p: int, q: int, entropy: Entropy) -> None:
        """Make the key from its primes: p ≡ q ≡ 3 mod 4, gcd(p - 1, q - 1) = 2.

        Args:
            p: A prime.
            q: Another prime.
            entropy: Draws the x of the noise generator h_s = (-x²)^N, and the first blind.
        """
        if p == q or p % 4 != 3 or q % 4 != 3 or gmpy2.gcd(p - 1, q - 1) != 2:
            raise LocalProtocolError("the primes do not fit Damgård, Jurik and Nielsen's conditions")
        self.public = PublicKey(p * q, _noise_generator(p * q, entropy))
        self._halves = (_Half(p, q), _Half(q, p))
        self._p_inverse = gmpy2.invert(p, q)
        self._blind = mpz(_random_power(self.public.modulus, entropy))
        self._blinding = threading.Lock()

    @classmethod
    def generate(cls, bits: int, entropy: Entropy) -> PrivateKey:
        """Return a new key whose N has exactly `bits` bits; takes about 0.15 s at 2048.

        The primes come from phe, which asks the operating system; `entropy` draws the noise generator.
        """
        return cls(*generate_primes(bits), entropy)

    def decrypt(self, ciphertext: int) -> int:
        """Return the plaintext residue in [0, N) of a ciphertext in (0, N²)."""
        return self.decrypt_all((ciphertext,))[0]

    def decrypt_all(self, ciphertexts: Sequence[int]) -> tuple[int, ...]:
        """Return the plaintext residue in [0, N) of each ciphertext in (0, N²), on several cores."""
        if not all(0 < ciphertext < self.public.modulus_squared for ciphertext in ciphertexts):
            raise LocalProtocolError("a ciphertext to be decrypted was not checked")
        blinded = self._blinded(ciphertexts)
        parts = [blinded[at : at + _PER_THREAD] for at in range(0, len(blinded), _PER_THREAD)]
        with ThreadPoolExecutor(min(_MOST_THREADS, max(1, 2 * len(parts)))) as threads:
            modulo_p, modulo_q = [threads.map(half.decrypt, parts) for half in self._halves]
        p, q = (half.prime for half in self._halves)
        return tuple(
            int(u + p * ((v - u) * self._p_inverse % q))
            for us, vs in zip(modulo_p, modulo_q, strict=True)
            for u, v in zip(us, vs, strict=True)
        )

    def _blinded(self, ciphertexts: Sequence[int]) -> list[mpz]:
        """Multiply each ciphertext with a blind of its own, the square of the one before."""
        modulus = mpz(self.public.modulus_squared)
        blinded = []
        with self._blinding:
            for ciphertext in ciphertexts:
                blinded.append(ciphertext * self._blind % modulus)
                self._blind = self._blind * self._blind % modulus
        return blinded

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

    def decrypt(self, blinded: list[mpz]) -> list[mpz]:
        """Return the plaintexts modulo the prime."""
        bases = [ciphertext % self._square for ciphertext in blinded]
        powers = gmpy2.powmod_base_list(bases, self.prime - 1, self._square)
        return [(power - 1) // self.prime * self._scale % self.prime for power in powers]

    def __repr__(self) -> str:
        return "_Half(hidden)"


def _noise_generator(modulus: int, entropy: Entropy) -> int:
    """Return h_s = (-x²)^N mod N² for a random unit x."""
    unit = _random_unit(modulus, entropy)
    return int(gmpy2.powmod(mpz(-unit * unit % modulus), modulus, mpz(modulus) * modulus))


def _random_power(modulus: int, entropy: Entropy) -> int:
    """Return x^N mod N², an encryption of zero, for a random unit x."""
    return int(gmpy2.powmod(mpz(_random_unit(modulus, entropy)), modulus, mpz(modulus) * modulus))


def _random_unit(modulus: int, entropy: Entropy) -> int:
    unit = 0
    while gmpy2.gcd(unit, modulus) != 1:
        unit = uniform_below(entropy, modulus)
    return unit
