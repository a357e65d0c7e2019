"""Cross products of two parties' columns, shared additively between them: the set-up of Gram rounds.

For a pair of parties h (holds the sum) and m (holds the mask), under C's key:

    h → m      [[pack(x̂_h,i)]] for every row i                     columns of a row share ciphertexts
    m → h      [[pack(Σ_i x̂_m,ij x̂_h,i + r_j)]] for every column j   r_j fresh, slot by slot
    h → C → h  the same under a uniform mask of h's                so that C sees uniform residues
    then       T_h = (G + r)' cut to the scale,  T_m = −r cut to the scale,  T_h' + T_m = G = X_m'X_h

Nobody ever holds G: h has it under m's masks, m has the masks. Columns are divided by their root mean square
beforehand (gram_plan.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.crypto.cipher import Cipher, CipherVector, SealedVector
from common.crypto.entropy import Entropy, uniform_masks
from common.crypto.fixed_point import FixedPoint
from common.crypto.gram_plan import GramPlan, norm_bound
from common.crypto.packing import Packing
from common.errors import NumericError, RemoteProtocolError
from common.types import Floats


@dataclass(frozen=True, slots=True)
class GramTools:
    """What all computations of a job share at one party."""

    cipher: Cipher
    fixed_point: FixedPoint
    plan: GramPlan
    entropy: Entropy


@dataclass(frozen=True, slots=True, eq=False)
class ScaledColumns:
    """One party's training columns in units in which Σ x² = n.

    Attributes:
        values: (n, d); a column of zeros stays one.
        units: Root mean square of each column, (d,); 1 for a column of zeros.
    """

    values: Floats = field(repr=False)
    units: Floats = field(repr=False)

    @classmethod
    def of(cls, columns: Floats) -> ScaledColumns:
        """Return the columns, scaled."""
        sizes = np.sqrt(np.mean(columns**2, axis=0))
        units = np.where(sizes > 0, sizes, 1.0)
        return cls(columns / units, units)

    def encoded(self, rows: slice, scale: FixedPoint) -> NDArray[Any]:
        """Return rows as integers at the scale."""
        return scale.encode(self.values[rows])

    def check(self, scale: FixedPoint) -> ScaledColumns:
        """Return the columns if they are what the plan was proved for.

        Raises:
            NumericError: A column is longer than that; a bug, or a value that is not finite.
        """
        bound = float(norm_bound(len(self.values), scale.scale_bits)) * 2.0 ** (-2 * scale.scale_bits)
        if not (np.sum(self.values**2, axis=0) <= bound).all():
            raise NumericError("a scaled column is longer than the plan allows")
        return self


def pack_rows(encoded: NDArray[Any], packing: Packing) -> list[int]:
    """Return the plaintexts of rows (n, d): all rows' first ciphertext, then all rows' second, and so on."""
    packed: list[int] = []
    for first in range(0, encoded.shape[1], packing.slots):
        total = np.zeros(len(encoded), dtype=object)
        for at, column in enumerate(encoded[:, first : first + packing.slots].T.astype(object)):
            total = total + (column << (packing.slot_bits * at))
        packed += total.tolist()
    return packed


class MaskedCrossProducts:
    """The masker's side of the set-up for one pair: X_m' times the other's packed rows, under masks."""

    def __init__(self, tools: GramTools, columns: ScaledColumns, peer_columns: int) -> None:
        self._tools = tools
        self._columns = columns
        self._peer_columns = peer_columns
        self._groups = tools.plan.products.plaintexts(peer_columns)
        self._sums: list[CipherVector] | None = None
        self._absorbed = 0

    def absorb(self, packed: CipherVector) -> None:
        """Add the next rows, packed as `pack_rows` does.

        Raises:
            RemoteProtocolError: They are not whole rows, or more than there are.
        """
        count, torn = divmod(len(packed), self._groups)
        end = self._absorbed + count
        if torn or end > len(self._columns.values):
            raise RemoteProtocolError(
                f"{len(packed)} ciphertexts of packed rows came for {len(self._columns.values)} rows"
            )
        own = self._columns.encoded(slice(self._absorbed, end), self._tools.fixed_point)
        cipher = self._tools.cipher
        parts = [
            cipher.transposed_product(own, packed[group * count : (group + 1) * count])
            for group in range(self._groups)
        ]
        if self._sums is None:
            self._sums = parts
        else:
            self._sums = [cipher.add(old, new) for old, new in zip(self._sums, parts, strict=True)]
        self._absorbed = end

    def masked(self) -> tuple[SealedVector, NDArray[Any]]:
        """Return the masked products, all columns' first ciphertext first, and the own share T_m, (d_m, d_h).

        Raises:
            RemoteProtocolError: Rows are missing.
        """
        if self._sums is None or self._absorbed != len(self._columns.values):
            raise RemoteProtocolError(
                f"{self._absorbed} packed rows came where {len(self._columns.values)} were agreed"
            )
        tools, own = self._tools, self._columns.values.shape[1]
        half = 1 << (tools.plan.mask_bits - 1)
        drawn = [tools.entropy.bits(tools.plan.mask_bits) - half for _ in range(own * self._peer_columns)]
        masks = np.array(drawn, dtype=object).reshape(own, self._peer_columns)
        products = CipherVector.joined(tools.cipher.key, self._sums)
        sealed = tools.cipher.seal(products, pack_rows(masks, tools.plan.products))
        return sealed, cut(-masks, tools.fixed_point.scale_bits)


class BlindedProducts:
    """The holder's side: takes the masked products through the key holder, which sees uniform residues."""

    def __init__(self, tools: GramTools, own_columns: int, peer_columns: int) -> None:
        self._tools = tools
        self._own = own_columns
        self._peer = peer_columns
        self._masks: list[int] = []

    @property
    def length(self) -> int:
        """How many ciphertexts the products are."""
        return self._tools.plan.products.plaintexts(self._own) * self._peer

    def blind(self, products: CipherVector) -> SealedVector:
        """Return the products under uniform masks of our own, for the key holder.

        Raises:
            RemoteProtocolError: There are more or fewer than were agreed.
        """
        if len(products) != self.length:
            raise RemoteProtocolError(
                f"{len(products)} masked cross products came where {self.length} were agreed"
            )
        modulus = self._tools.cipher.key.modulus
        self._masks = uniform_masks(self._tools.entropy, self.length, modulus)
        return self._tools.cipher.seal(products, self._masks)

    def share(self, residues: Sequence[int]) -> NDArray[Any]:
        """Return our share T_h, (d_h, d_m), from what the key holder decrypted.

        Raises:
            RemoteProtocolError: The key holder returned more or fewer values than were sent.
            NumericError: A value does not fit its slot.
        """
        if len(residues) != len(self._masks):
            raise RemoteProtocolError(
                f"the key holder returned {len(residues)} values for {len(self._masks)}"
            )
        modulus, packing = self._tools.cipher.key.modulus, self._tools.plan.products
        clear = [(residue - mask) % modulus for residue, mask in zip(residues, self._masks, strict=True)]
        self._masks = []
        rows = [
            packing.unpack(clear[column :: self._peer], self._own, modulus) for column in range(self._peer)
        ]
        return cut(np.array(rows, dtype=object).T, self._tools.fixed_point.scale_bits)


def cut(values: NDArray[Any], bits: int) -> NDArray[Any]:
    """Return integers with their low bits rounded away; a sum of two moves by at most one unit."""
    return np.asarray((values + (1 << (bits - 1))) >> bits)


class Sharing:
    """One party's side of all pairs it belongs to, step by step."""

    def __init__(self, tools: GramTools, columns: Floats, peer_columns: Mapping[str, int]) -> None:
        """Begin the set-up.

        Args:
            tools: Of the job.
            columns: Ours on the training rows, (n, d); the active party's labels are its last column.
            peer_columns: Columns of every other party; labels count as one.
        """
        self.columns = ScaledColumns.of(columns).check(tools.fixed_point)
        self._tools = tools
        self._peer_columns = dict(peer_columns)
        self._masking: dict[str, MaskedCrossProducts] = {}
        self._blinding: dict[str, BlindedProducts] = {}

    @property
    def row_ciphertexts(self) -> int:
        """How many ciphertexts one of our packed rows takes."""
        return self._tools.plan.products.plaintexts(self.columns.values.shape[1])

    def encrypt_rows(self, rows: slice) -> SealedVector:
        """h: [[pack(x̂_i)]] of the given rows."""
        encoded = self.columns.encoded(rows, self._tools.fixed_point)
        return self._tools.cipher.encrypt(pack_rows(encoded, self._tools.plan.products))

    def begin_masking(self, holder: str) -> None:
        """m: begin, or begin again, the products with a holder's rows."""
        self._masking[holder] = MaskedCrossProducts(self._tools, self.columns, self._peer_columns[holder])

    def absorb_rows(self, holder: str, packed: CipherVector) -> None:
        """m: add X_m' times the next packed rows of a holder."""
        self._masking[holder].absorb(packed)

    def masked_products(self, holder: str) -> tuple[SealedVector, NDArray[Any]]:
        """m: return [[pack(G + r)]] for the holder, and our share T_m."""
        return self._masking.pop(holder).masked()

    def products_length(self, masker: str) -> int:
        """h: return how many ciphertexts a masker's products are."""
        return self._blinded(masker).length

    def blind_products(self, masker: str, products: CipherVector) -> SealedVector:
        """h: return a masker's products under uniform masks of our own, for the key holder."""
        self._blinding[masker] = self._blinded(masker)
        return self._blinding[masker].blind(products)

    def open_products(self, masker: str, residues: Sequence[int]) -> NDArray[Any]:
        """h: return our share T_h from what the key holder decrypted."""
        return self._blinding.pop(masker).share(residues)

    def _blinded(self, masker: str) -> BlindedProducts:
        return BlindedProducts(self._tools, self.columns.values.shape[1], self._peer_columns[masker])
