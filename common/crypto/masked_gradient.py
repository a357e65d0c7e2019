"""One party's gradient on its way through the key holder: X'[[d]], mask, unmask.

[[g]] = Σ over chunks of  X'[[d]]          computed where X is, d stays encrypted
[[G]] = [[Σ_j 2^(w·j) g_j]]                several entries in one plaintext, as many as fit (packing.py)
[[G + R]]                                  R uniform on Z_N, fresh per plaintext: what the key holder sees
G = (G + R) − R   mod N                    where the mask was drawn, and only there

G + R mod N is uniform on Z_N whatever G is, so packing shows the key holder nothing, and leaves it fewer
ciphertexts to decrypt: one for nine or ten columns at 2048 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.crypto.cipher import Cipher, CipherVector, SealedVector
from common.crypto.entropy import Entropy, uniform_masks
from common.crypto.fixed_point import FixedPoint
from common.crypto.packing import Packing
from common.errors import LocalProtocolError, RemoteProtocolError
from common.types import Floats

# Rows that are multiplied at once: buckets fill better with more rows (multiexp.py), while all that waits
# is 8 MB of ciphertexts at 2048 bits.
BLOCK_ROWS = 16_384

# Wider than any key: a plaintext is one slot.
_ONE_EACH = Packing(slot_bits=2**16, slots=1)


class MaskedGradient:
    """Accumulates X'[[d]] over the chunks of one round, and takes the round trip through the key holder."""

    def __init__(
        self, cipher: Cipher, fixed_point: FixedPoint, entropy: Entropy, packing: Packing = _ONE_EACH
    ) -> None:
        """Begin; without a packing every entry has a plaintext of its own."""
        self._packing = packing
        self._columns = 0
        self._cipher = cipher
        self._fixed_point = fixed_point
        self._entropy = entropy
        self._sum: CipherVector | None = None
        self._waiting: list[tuple[Floats, CipherVector]] = []
        self._masks: list[int] | None = None

    def absorb(self, features: Floats, vector: CipherVector) -> None:
        """Add `features`' [[vector]] to the sum; shapes (n, d) and (n,).

        The product is computed once enough rows have come together, or when the sum is asked for.
        """
        self._waiting.append((features, vector))
        if sum(len(part) for _, part in self._waiting) >= BLOCK_ROWS:
            self._multiply()

    def total(self) -> CipherVector:
        """Return the encrypted sum; a ciphertext to go on computing with, not one to send."""
        self._multiply()
        if self._sum is None:
            raise LocalProtocolError("a gradient was asked for before any row of the round was absorbed")
        return self._sum

    def _multiply(self) -> None:
        if not self._waiting:
            return
        features = self._fixed_point.encode(np.concatenate([part for part, _ in self._waiting]))
        vector = CipherVector.joined(self._cipher.key, [part for _, part in self._waiting])
        self._waiting = []
        part = self._cipher.transposed_product(features, vector)
        self._sum = part if self._sum is None else self._cipher.add(self._sum, part)

    def masked(self, columns: int) -> SealedVector:
        """Return the first `columns` entries, packed, under fresh uniform masks, re-randomised (1.2.1, 2)."""
        packed = self._packed(self.total()[:columns])
        self._columns = columns
        self._masks = uniform_masks(self._entropy, len(packed), self._cipher.key.modulus)
        return self._cipher.seal(packed, self._masks)

    def _packed(self, entries: CipherVector) -> CipherVector:
        """Return [[Σ_j 2^(w·j) g_j]] of every few entries."""
        slots, width = self._packing.slots, self._packing.slot_bits
        if slots == 1:
            return entries
        parts = []
        for start in range(0, len(entries), slots):
            group = entries[start : start + slots]
            shifts = np.array([1 << (width * at) for at in range(len(group))], dtype=object)
            parts.append(self._cipher.transposed_product(shifts[:, np.newaxis], group))
        return CipherVector.joined(self._cipher.key, parts)

    def unmask(self, residues: Sequence[int]) -> Floats:
        """Take the masks off what the key holder decrypted; the sum over the round's rows, not the mean."""
        if self._masks is None:
            raise LocalProtocolError("a gradient came back before a masked one was sent")
        if len(residues) != len(self._masks):
            raise RemoteProtocolError(
                f"the key holder returned {len(residues)} values for {len(self._masks)}"
            )
        modulus = self._cipher.key.modulus
        clear = [(residue - mask) % modulus for residue, mask in zip(residues, self._masks, strict=True)]
        self._masks = None
        entries = self._packing.unpack(clear, self._columns, modulus)
        return np.array([self._fixed_point.decode_wide(value % modulus, modulus) for value in entries])
