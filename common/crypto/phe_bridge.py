"""The only module that imports phe (python-paillier, GPL-3.0): its primes, and a reference cipher.

`PheCipher` does with phe's own objects, one number after another, what `PaillierCipher` does with tables and
buckets. It exists to be compared with, and for those who trust a well-known library more than speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from phe import EncodedNumber, EncryptedNumber, PaillierPublicKey
from phe.util import getprimeover

from common.crypto.cipher import SEAL, CipherVector, SealedVector, same_key, same_length
from common.crypto.entropy import Entropy, uniform_below
from common.crypto.fanout import in_order
from common.crypto.paillier import PublicKey
from common.errors import LocalProtocolError

_SMALLEST_KEY_BITS = 64
_CHUNK = 8  # about 100 ms of phe's work at 2048 bits


def generate_primes(bits: int) -> tuple[int, int]:
    """Return primes for a key of exactly `bits` bits, drawn by phe from the operating system.

    Damgård, Jurik and Nielsen 2010, §4.2 ask for p ≡ q ≡ 3 mod 4 and gcd(p - 1, q - 1) = 2, so that -x² has
    the largest possible order. That takes ten draws or so, about 0.13 s at 2048 bits.

    Raises:
        LocalProtocolError: `bits` is odd, or below 64, where suitable primes are rare.
    """
    if bits % 2 or bits < _SMALLEST_KEY_BITS:
        raise LocalProtocolError(f"a key needs an even number of bits, {_SMALLEST_KEY_BITS} at least")
    while True:
        p, q = _blum_prime(bits // 2), _blum_prime(bits // 2)
        if (p * q).bit_length() == bits and math.gcd(p - 1, q - 1) == 2:
            return p, q


def _blum_prime(bits: int) -> int:
    while True:
        prime = int(getprimeover(bits))
        if prime % 4 == 3:
            return prime


class PheCipher:
    """The reference cipher: phe's EncryptedNumber at exponent 0, with phe's noise r^N."""

    def __init__(self, key: PublicKey, executor: Executor, entropy: Entropy) -> None:
        self.key = key
        self._executor = executor
        self._entropy = entropy

    def encrypt(self, plain: Sequence[int]) -> SealedVector:
        """Return [[plain]] under fresh noise."""
        return self._noised(None, plain)

    def seal(self, vector: CipherVector, addends: Sequence[int]) -> SealedVector:
        """Return [[vector + addends]] under fresh noise."""
        same_length(len(same_key(self.key, vector)), len(addends))
        return self._noised(vector.ciphertexts(), addends)

    def add(self, left: CipherVector, right: CipherVector) -> CipherVector:
        """Return [[left + right]]."""
        same_length(len(same_key(self.key, left)), len(same_key(self.key, right)))
        public = PaillierPublicKey(self.key.modulus)
        sums = (
            EncryptedNumber(public, one) + EncryptedNumber(public, other)
            for one, other in zip(left.ciphertexts(), right.ciphertexts(), strict=True)
        )
        return CipherVector.of(self.key, (total.ciphertext(be_secure=False) for total in sums))

    def transposed_product(self, matrix: NDArray[Any], vector: CipherVector) -> CipherVector:
        """Return matrixᵀ[[vector]], one exponentiation for each element."""
        if matrix.ndim != 2 or any(not isinstance(value, int | np.integer) for value in matrix.flat):
            raise LocalProtocolError("a transposed product needs a matrix of integers")
        same_length(len(same_key(self.key, vector)), matrix.shape[0])
        ciphertexts = vector.ciphertexts()
        tasks = ((self.key.modulus, ciphertexts, [int(value) for value in column]) for column in matrix.T)
        return CipherVector.of(self.key, in_order(self._executor, _dot_product, tasks))

    def _noised(self, ciphertexts: list[int] | None, addends: Sequence[int]) -> SealedVector:
        modulus = self.key.modulus

        def chunks() -> Iterable[tuple[int, Entropy, list[int] | None, list[int]]]:
            for start in range(0, len(addends), _CHUNK):
                part = None if ciphertexts is None else ciphertexts[start : start + _CHUNK]
                plain = [int(addend) % modulus for addend in addends[start : start + _CHUNK]]
                yield modulus, self._entropy.split(), part, plain

        sealed = [fresh for chunk in in_order(self._executor, _noised_chunk, chunks()) for fresh in chunk]
        return SealedVector(CipherVector.of(self.key, sealed), SEAL)


def _noised_chunk(task: tuple[int, Entropy, list[int] | None, list[int]]) -> list[int]:
    modulus, entropy, ciphertexts, plain = task
    public = PaillierPublicKey(modulus)
    sealed = []
    for row, residue in enumerate(plain):
        noise = 2 + uniform_below(entropy, modulus - 2)
        fresh = EncryptedNumber(public, public.raw_encrypt(residue, r_value=noise))
        if ciphertexts is not None:
            fresh += EncryptedNumber(public, ciphertexts[row])
        sealed.append(int(fresh.ciphertext(be_secure=False)))
    return sealed


def _dot_product(task: tuple[int, list[int], list[int]]) -> int:
    modulus, ciphertexts, exponents = task
    public = PaillierPublicKey(modulus)
    total = EncryptedNumber(public, 1)
    for ciphertext, exponent in zip(ciphertexts, exponents, strict=True):
        if exponent:
            # An encoding by hand: EncodedNumber.encode would choose an exponent for itself.
            scalar = EncodedNumber(public, exponent % modulus, 0)
            total += EncryptedNumber(public, ciphertext) * scalar
    return int(total.ciphertext(be_secure=False))
