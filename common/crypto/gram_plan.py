"""The proof for Gram rounds: how wide slots must be, how wide masks, and what precision remains.

Every party divides each of its columns (labels are one) by the column's root mean square, so that Σ x² = n.
With x̂ = round(x·2^s), Cauchy–Schwarz bounds every entry of G = X_j'X_k without a word about the data:

    |Σ_i x̂_ij x̂_ik|  ≤  ‖x̂_j‖·‖x̂_k‖  ≤  n·E²,     E = 2^s + 2^(s−30) + 1

(the last two terms cover rounding to the scale and to doubles). A mask r is uniform over an interval that is
2^(1 + MASKING_BITS + m) times wider, 2^m the number of entries that are masked, so that all of G + r together
has a statistical distance below 2^−MASKING_BITS from what it would be for any other G.

Both shares are then cut from twice the scale to the scale, which moves G by one unit at most: less than the
rounding of the columns, and exponents become s bits shorter. A round's result Σ_l G_kl v_l is at twice the
scale again.
"""

from __future__ import annotations

from dataclasses import dataclass

from common.crypto.packing import Packing
from common.errors import NumericError

# PROTOCOLS §1.4. Statistical: no computing power turns the 2^-40 into more.
MASKING_BITS = 40
# What every entry of a direction is held to, in units in which columns have root mean square 1.
DIRECTION_LIMIT_BITS = 50


@dataclass(frozen=True, slots=True)
class GramRequest:
    """What the proof is about.

    Attributes:
        key_bits: Length of N.
        scale_bits: s.
        rows: Training rows.
        columns: Columns of all parties together; the labels are one.
    """

    key_bits: int
    scale_bits: int
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class GramPlan:
    """What was proved.

    Attributes:
        request: What the proof is about.
        products: Slots of masked cross products, at twice the scale.
        mask_bits: Masks are uniform over 2^mask_bits integers, symmetric around 0.
        results: Slots of a round's result, at twice the scale.
    """

    request: GramRequest
    products: Packing
    mask_bits: int
    results: Packing

    def describe(self) -> str:
        """Return what was proved, in plain words."""
        products, results = self.products, self.results
        return (
            f"Gram rounds: {products.slots} cross products share one ciphertext, in slots of "
            f"{products.slot_bits} bits; each is under a mask of {self.mask_bits} bits, which hides all of "
            f"them together up to a statistical distance of 2^-{MASKING_BITS}. {results.slots} entries of "
            f"a round's result share one ciphertext, in slots of {results.slot_bits} bits, under a mask "
            "that is uniform modulo N."
        )


def norm_bound(rows: int, scale_bits: int) -> int:
    """Return n·E²: the bound for Σ x̂² of a column, and for every cross product."""
    largest = (1 << scale_bits) + (1 << max(0, scale_bits - 30)) + 1
    return rows * largest * largest


def prove_gram(request: GramRequest) -> GramPlan:
    """Return the plan, or refuse the job.

    Raises:
        NumericError: Not even one slot fits the key; the advice says what would do.
    """
    if min(request.rows, request.columns, request.scale_bits) < 1:
        raise NumericError("a plan needs rows, columns and bits of precision")
    product_bits = norm_bound(request.rows, request.scale_bits).bit_length()
    # No two parties mask more entries between them than this.
    entries_bits = (request.columns * request.columns).bit_length()
    mask_bits = product_bits + 1 + MASKING_BITS + entries_bits
    # |G + r| < 2^product_bits + 2^(mask_bits − 1) < 2^mask_bits, which a signed slot of one bit more holds.
    products = Packing.of(request.key_bits, mask_bits + 1)
    # Σ over all columns of (|Ĝ| at the scale, and two units for cutting it) times the direction.
    entry = (norm_bound(request.rows, request.scale_bits) >> request.scale_bits) + 3
    direction = 1 << (DIRECTION_LIMIT_BITS + request.scale_bits)
    results = Packing.of(request.key_bits, (request.columns * entry * direction).bit_length() + 1)
    return GramPlan(request, products, mask_bits, results)
