"""One key as this library and as phe see it."""

from __future__ import annotations

from dataclasses import dataclass

import phe

from common.crypto.cipher import Cipher, PaillierCipher
from common.crypto.phe_bridge import PheCipher
from common.crypto.private_key import PrivateKey


@dataclass(frozen=True, slots=True)
class Bench:
    """The same primes as a key of ours and as a key of phe's, and the two ciphers."""

    private: PrivateKey
    phe_public: phe.PaillierPublicKey
    phe_private: phe.PaillierPrivateKey
    ours: PaillierCipher
    reference: PheCipher

    def signed(self, ciphertexts: list[int]) -> list[int]:
        """Decrypt to signed integers."""
        modulus = self.private.public.modulus
        residues = [self.private.decrypt(ciphertext) for ciphertext in ciphertexts]
        return [residue - modulus if 2 * residue > modulus else residue for residue in residues]

    def cipher(self, backend: str) -> Cipher:
        """Return the cipher that `crypto.backend` of a job would choose."""
        return {"gmpy2": self.ours, "phe": self.reference}[backend]
