"""Paillier encryption on plain integers.

    Enc(m) = (1 + m·N) · h_s^r  mod N²        h_s = (-x²)^N mod N², r random and short
    Enc(a) · Enc(b) = Enc(a + b)              Enc(a)^k = Enc(k·a)

Paillier 1999 with the generator 1 + N; the short-exponent noise is Damgård, Jurik, Nielsen 2010, §4.2.
Sharp: callers bring residues in range and fresh noise. What other floors use is `common.crypto.cipher`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import gmpy2

from common.errors import RemoteProtocolError
from common.types import Noise

# Below this the sums of even a toy job do not fit. What is secure is policy, a matter of configuration.
_SMALLEST_MODULUS_BITS = 128
_PRIME_ROUNDS = 25

# Twice the security level of a modulus (NIST SP 800-57 part 1, table 2, rounded up), by the largest modulus
# it is for: the best known attack on an exponent of 2k bits takes 2^k steps.
_SHORT_BITS = ((3072, 256), (7680, 384))
_LONGEST_SHORT_BITS = 512


@dataclass(frozen=True, slots=True)
class PublicKey:
    """What everybody may know: enough to encrypt, to compute on ciphertexts, and to re-randomise them.

    Attributes:
        modulus: N.
        noise_generator: h_s, an N-th power modulo N².
        noise: How long its holder draws r; ciphertexts do not show it, and fit each other.
        modulus_squared: N².
        key_id: SHA-256 of both numbers, to be compared between parties.
    """

    modulus: int = field(repr=False)
    noise_generator: int = field(repr=False)
    noise: Noise = "proven"
    modulus_squared: int = field(init=False, repr=False, compare=False)
    key_id: bytes = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Plain integers, so that the key pickles and hashes alike wherever it came from.
        object.__setattr__(self, "modulus", int(self.modulus))
        object.__setattr__(self, "noise_generator", int(self.noise_generator))
        object.__setattr__(self, "modulus_squared", self.modulus * self.modulus)
        width = self.residue_bytes.to_bytes(4, "big")
        digest = hashlib.sha256(width + self.modulus_bytes + self.noise_generator_bytes)
        object.__setattr__(self, "key_id", digest.digest())

    @property
    def bits(self) -> int:
        """The length of N in bits."""
        return self.modulus.bit_length()

    @property
    def noise_bits(self) -> int:
        """How many random bits the exponent r of fresh noise has, at least."""
        return noise_bits(self.bits, self.noise)

    @property
    def residue_bytes(self) -> int:
        """The width of a residue modulo N."""
        return (self.modulus.bit_length() + 7) // 8

    @property
    def ciphertext_bytes(self) -> int:
        """The width of a ciphertext, a residue modulo N²."""
        return (self.modulus_squared.bit_length() + 7) // 8

    @property
    def modulus_bytes(self) -> bytes:
        """N, big-endian, as it travels."""
        return self.modulus.to_bytes(self.residue_bytes, "big")

    @property
    def noise_generator_bytes(self) -> bytes:
        """h_s, big-endian and as wide as a ciphertext, as it travels."""
        return self.noise_generator.to_bytes(self.ciphertext_bytes, "big")

    @classmethod
    def from_bytes(cls, modulus: bytes, noise_generator: bytes, noise: Noise = "proven") -> PublicKey:
        """Return the key that a peer sent, after every check that needs no private key.

        Raises:
            RemoteProtocolError: The numbers cannot be a Paillier key.
        """
        number = int.from_bytes(modulus, "big")
        generator = int.from_bytes(noise_generator, "big")
        if number.bit_length() < _SMALLEST_MODULUS_BITS or len(modulus) != (number.bit_length() + 7) // 8:
            raise RemoteProtocolError("the public key's modulus is too short or padded")
        if number % 2 == 0 or gmpy2.is_power(number) or gmpy2.is_prime(number, _PRIME_ROUNDS):
            raise RemoteProtocolError("the public key's modulus is not a product of two odd primes")
        if not 1 < generator < number * number or gmpy2.gcd(generator, number) != 1:
            raise RemoteProtocolError("the public key's noise generator is out of range")
        key = cls(number, generator, noise)
        if len(noise_generator) != key.ciphertext_bytes:
            raise RemoteProtocolError("the public key's noise generator has the wrong width")
        return key


def noise_bits(key_bits: int, noise: Noise) -> int:
    """Return how many random bits the exponent r of noise has: half of |N|, as is proven, or fewer."""
    proven = (key_bits + 1) // 2
    if noise == "proven":
        return proven
    short = (bits for longest, bits in _SHORT_BITS if key_bits <= longest)
    return min(proven, next(short, _LONGEST_SHORT_BITS))


def encrypt(key: PublicKey, plaintext: int, noise: int) -> int:
    """Return (1 + m·N)·noise mod N²; `noise` is a fresh random N-th power."""
    return (1 + plaintext * key.modulus) * noise % key.modulus_squared
