"""Several signed integers in one plaintext: slots of equal width, the first one lowest.

    pack(v) = Σ_j v_j · 2^(w·j)

Packing is linear over the integers: pack(u) + pack(v) = pack(u + v), whatever carries from slot to slot on
the way, and it may wrap around modulo N on the way too. Only the last sum has to fit: |v_j| < 2^(w−1), and
all slots together stay below N/3. `common.crypto.gram_plan` proves both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.errors import LocalProtocolError, NumericError

# Of the key's length: one bit because N may be just above 2^(bits−1), two for the guard |value| < N/3.
_RESERVED_BITS = 3


@dataclass(frozen=True, slots=True)
class Packing:
    """How vectors are laid out in plaintexts.

    Attributes:
        slot_bits: w.
        slots: How many slots a plaintext has, at least one.
    """

    slot_bits: int
    slots: int

    @classmethod
    def of(cls, key_bits: int, slot_bits: int) -> Packing:
        """Return as many slots of this width as a key of this length holds.

        Raises:
            NumericError: Not even one fits.
        """
        slots = (key_bits - _RESERVED_BITS) // slot_bits
        if slots < 1:
            raise NumericError(
                f"a slot of {slot_bits} bits does not fit a {key_bits}-bit key",
                advice="Lower crypto.precision_bits, or use a longer key (crypto.key_bits).",
            )
        return cls(slot_bits, slots)

    def plaintexts(self, length: int) -> int:
        """Return how many plaintexts a vector of this length takes."""
        return -(-length // self.slots)

    def pack(self, values: Sequence[int]) -> list[int]:
        """Return the plaintexts of a vector: signed integers of any size."""
        return [
            sum(value << (self.slot_bits * at) for at, value in enumerate(values[start : start + self.slots]))
            for start in range(0, len(values), self.slots)
        ]

    def unpack(self, residues: Sequence[int], length: int, modulus: int) -> list[int]:
        """Return the vector of this length in plaintexts modulo N; each entry within ±2^(w−1).

        Raises:
            LocalProtocolError: There are not as many plaintexts as the vector takes.
            NumericError: A plaintext is larger than its slots.
        """
        if len(residues) != self.plaintexts(length):
            raise LocalProtocolError(f"{len(residues)} plaintexts are not a vector of {length} entries")
        values: list[int] = []
        for residue in residues:
            values += self._opened(residue % modulus, min(self.slots, length - len(values)), modulus)
        return values

    def _opened(self, residue: int, count: int, modulus: int) -> list[int]:
        half, low = 1 << (self.slot_bits - 1), (1 << self.slot_bits) - 1
        signed = residue - modulus if 2 * residue > modulus else residue
        # With half a slot added to each slot all digits are positive, and none borrows from the next one.
        raised = signed + sum(half << (self.slot_bits * at) for at in range(count))
        if not 0 <= raised < 1 << (self.slot_bits * count):
            raise NumericError(
                "a decrypted vector does not fit its slots",
                advice="the weights have grown beyond the declared limits, or the answer is not ours",
            )
        return [((raised >> (self.slot_bits * at)) & low) - half for at in range(count)]
