"""Seconds of one core for what ciphers do to vectors, from the calibration of the machine."""

from __future__ import annotations

from dataclasses import dataclass

from common.crypto.multiexp import column_cost
from common.crypto.packing import Packing
from common.crypto.paillier import noise_bits
from common.runtime.calibration import Calibration
from common.types import Noise

# What Python and pickling add to every ciphertext that is made or taken, beside products.
_HANDLING_S = 25e-6
_PARSING_PRODUCTS = 0.8
_HALVING_PRODUCTS = 2.0
# A bucket product in place: measured 1.15 times the products it counts (benchmarks/micro).
_KERNEL_OVERHEAD = 1.15


@dataclass(frozen=True, slots=True)
class Costs:
    """The model's unit costs at one length of key."""

    speed: Calibration
    key_bits: int
    noise: Noise = "proven"

    @property
    def key_pair_s(self) -> float:
        """Making a key pair: grows with the fourth power of its length."""
        return 0.15 * (self.key_bits / 2048) ** 4

    def bytes(self, ciphertexts: int) -> float:
        """Return the size of ciphertexts."""
        return ciphertexts * self.key_bits / 4

    def encrypted_s(self, count: int) -> float:
        """Return the time to encrypt, or to add plaintexts and re-randomise."""
        # A power takes as many products as its exponent has bits, by the same table.
        shorter = noise_bits(self.key_bits, self.noise) / noise_bits(self.key_bits, "proven")
        return count * (shorter * self.speed.noise_s + 2 * self.speed.product_s + _HANDLING_S)

    def sealed_s(self, count: int) -> float:
        """Return the time to add plaintexts to ciphertexts and re-randomise."""
        return self.encrypted_s(count) + count * self.speed.product_s

    def packed_s(self, entries: int, packing: Packing) -> float:
        """Return the time to put encrypted entries into few ciphertexts, and to seal those."""
        filled = min(entries, packing.slots)
        shifting = self.few_s(filled, packing.slot_bits * (filled - 1)) if filled > 1 else 0.0
        return packing.plaintexts(entries) * (shifting + self.sealed_s(1))

    def received_s(self, count: int) -> float:
        """Return the time to check ciphertexts that came, and to hand them on."""
        return count * (_PARSING_PRODUCTS * self.speed.product_s + _HANDLING_S / 2)

    def added_s(self, count: int) -> float:
        """Return the time to add pairs of ciphertexts."""
        return count * (self.speed.product_s + _HANDLING_S / 4)

    def decrypted_s(self, count: int) -> float:
        """Return the time to decrypt."""
        return count * self.speed.decryption_s

    def product_s(self, rows: int, columns: int, bits: int) -> float:
        """Return the time for X'[[v]] of dense columns."""
        if not rows or not columns:
            return 0.0
        products = columns * column_cost(rows, bits) * _KERNEL_OVERHEAD + _HALVING_PRODUCTS * rows
        return products * self.speed.product_s

    def ones_s(self, rows: int, columns: int, zeros: int) -> float:
        """Return the time for X'[[v]] of constant columns."""
        return columns * (0.6 * rows + zeros) * self.speed.product_s

    def few_s(self, bases: int, bits: int) -> float:
        """Return the time for a product of few powers with long exponents (straus.py)."""
        window = 6
        return (0.87 * bits + bases * (bits / (window + 1) + (1 << (window - 1)) + 4)) * self.speed.product_s
