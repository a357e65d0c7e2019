"""The proof, before the first round, that nothing can overflow (PROTOCOLS rule 1.2.7)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from common.crypto.packing import Packing
from common.errors import NumericError

# What the roles hold their values against at run time. Wide enough that data in any sane unit passes at 2048
# bits, where even a million rows at 50 bits of scale stay below 2^220.
FEATURE_LIMIT = 2.0**40
SCORE_LIMIT = 2.0**50

# What one slot of a packed gradient is made for; the key holder, who knows neither, must find the same width.
_MOST_ROWS = 2**32
_MOST_PARTIES = 2**8

_LARGEST_LIMIT = 1e100  # its square, times any number of rows, is still a double


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What the proof is about.

    Attributes:
        key_bits: Length of N.
        scale_bits: The job's fixed-point scale s: x stands as round(x·2^s).
        rows: Rows that one gradient is summed over.
        columns: Columns of the widest party.
        feature_limit: Every |x| stays within it; the parties check.
        score_limit: Every party's |u|, and |z| = |u_B - y|, stay within it; the parties check, every round.
        parties: Parties whose scores add up to a residual.
    """

    key_bits: int
    scale_bits: int
    rows: int
    columns: int
    feature_limit: float = FEATURE_LIMIT
    score_limit: float = SCORE_LIMIT
    parties: int = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What was proved, and what precision remains. Errors are absolute, of sums over the rows, not means.

    Attributes:
        request: What the proof is about.
        headroom_bits: How many times the largest value could double before it reached N/3.
        resolution: The distance of neighbouring numbers at the scale, 2^-s.
        gradient_error: Bound for an entry of X'd, with values as large as the declared limits.
        typical_gradient_error: Root mean square for an entry of X'd, with columns and residuals of size 1.
        loss_error: Bound for the sum-form loss, with values as large as the declared limits.
        typical_loss_error: Root mean square for the sum-form loss, with scores of size 1.
        loss_share_limit: The proof holds while each party's own part of the loss stays within it.

    The loss errors are those of two parties. With several passive ones each part is ½ w·(X'd), and carries
    ½ ‖w‖₁ times the gradient's error besides.
    """

    request: PlanRequest
    headroom_bits: int
    resolution: float
    gradient_error: float
    typical_gradient_error: float
    loss_error: float
    typical_loss_error: float
    loss_share_limit: float

    def describe(self) -> str:
        """Return what was proved, in plain words."""
        request = self.request
        proved = (
            f"With a {request.key_bits}-bit key, {request.scale_bits} bits of precision and {request.rows} "
            f"rows, nothing can overflow while features stay within ±{request.feature_limit:.3g} and scores "
            f"within ±{request.score_limit:.3g}; {self.headroom_bits} bits are left."
        )
        typical = (
            f"Numbers are rounded to multiples of {self.resolution:.2g}. For columns, scores and residuals "
            f"of size 1, that moves a gradient entry, summed over the rows, by about "
            f"{self.typical_gradient_error:.1g} and the summed loss by about {self.typical_loss_error:.1g}."
        )
        worst = (
            f"These errors grow in proportion to the values, and for values at the limits cannot exceed "
            f"{self.gradient_error:.1g} and {self.loss_error:.1g}. Double precision adds its own rounding, "
            f"about 1e-16 of each value."
        )
        return " ".join((proved, typical, worst))

    def gradient_error_within(self, feature_limit: float, score_limit: float) -> float:
        """Return the bound for an entry of X'd when features and scores really are this small."""
        return _gradient_error(self.request, feature_limit, score_limit)


def prove_ranges(request: PlanRequest) -> Plan:
    """Return the plan, or refuse the job.

    Proved: |u|, |z|, |d|, |X'd| and |L| < N/3 as encoded, the last two at twice the scale, for every N of
    `key_bits` bits.

    Raises:
        NumericError: It cannot be proved; the advice says which setting would do.
    """
    _check(request)
    largest = _largest_value(request)
    room = 1 << (request.key_bits - 1)  # the smallest N of this length
    packed = gradient_packing(request.key_bits, request.scale_bits).slots > 1
    if packed and (request.rows > _MOST_ROWS or request.parties > _MOST_PARTIES):
        raise NumericError(f"a gradient is packed for {_MOST_ROWS} rows and {_MOST_PARTIES} parties at most")
    if 3 * largest >= room:
        raise NumericError(
            f"a gradient over {request.rows} rows at {request.scale_bits} bits of precision may not fit "
            f"a {request.key_bits}-bit key",
            advice=_advice(request),
        )
    rows, parties = request.rows, request.parties
    step = 2.0**-request.scale_bits
    return Plan(
        request=request,
        headroom_bits=((room - 1) // (3 * largest)).bit_length() - 1,
        resolution=step,
        gradient_error=_gradient_error(request, request.feature_limit, request.score_limit),
        # An encoding's rounding error is uniform in ±step/2, of variance step²/12; a row's product carries
        # that of the feature and that of each party's score.
        typical_gradient_error=step * math.sqrt(rows * (1 + parties) / 12),
        loss_error=_loss_error(request),
        typical_loss_error=step * math.sqrt(rows * parties * (parties - 1) / 12),
        loss_share_limit=_loss_share_limit(request),
    )


def gradient_packing(key_bits: int, scale_bits: int) -> Packing:
    """Return how a gradient is laid out for the key holder: several entries in one plaintext.

    A slot holds any gradient within the limits over 2^32 rows, with a sign. A key in which not even one fits
    has one entry in each plaintext, and `prove_ranges` says whether that fits.
    """
    gradient = (
        _MOST_ROWS * _encoded(FEATURE_LIMIT, scale_bits) * _MOST_PARTIES * _encoded(SCORE_LIMIT, scale_bits)
    )
    slot_bits = gradient.bit_length() + 1
    return Packing.of(key_bits, slot_bits) if slot_bits <= key_bits // 2 else Packing(slot_bits, 1)


def _check(request: PlanRequest) -> None:
    limits = (request.feature_limit, request.score_limit)
    if not all(0 < limit <= _LARGEST_LIMIT for limit in limits):  # False for NaN too
        raise NumericError(f"the declared limits must be positive and at most {_LARGEST_LIMIT:.0e}")
    if request.rows < 1 or request.columns < 1 or request.scale_bits < 1 or request.parties < 1:
        raise NumericError("a plan needs rows, columns, parties and bits of precision")


def _encoded(limit: float, scale_bits: int) -> int:
    """Return the largest integer that a number within the limit can be rounded to."""
    numerator, denominator = limit.as_integer_ratio()
    return -(-(numerator << scale_bits) // denominator)


def _largest_value(request: PlanRequest) -> int:
    """Return a bound, in exact integers, for everything that is ever encrypted without a mask."""
    rows, parties = request.rows, request.parties
    feature = _encoded(request.feature_limit, request.scale_bits)
    score = _encoded(request.score_limit, request.scale_bits)
    residual = parties * score
    gradient = rows * feature * residual
    # L: each party's own part, and a product of scores for each pair of parties.
    shares = parties * _encoded(_loss_share_limit(request), 2 * request.scale_bits)
    loss = shares + parties * (parties - 1) // 2 * rows * score * score
    return max(gradient, loss, residual)


def _loss_share_limit(request: PlanRequest) -> float:
    """Return n·parties·score²: twice ½ Σ u_k·d at the limits, which leaves the other half to the penalty."""
    return request.rows * request.parties * request.score_limit**2


def _gradient_error(request: PlanRequest, feature_limit: float, score_limit: float) -> float:
    """Bound Σ |x̂·d̂ - x·d| with |x̂ - x| ≤ step/2 and |d̂ - d| ≤ parties·step/2."""
    half = 2.0 ** -(request.scale_bits + 1)
    row = feature_limit * request.parties * half + request.parties * score_limit * half
    return request.rows * (row + request.parties * half * half)


def _loss_error(request: PlanRequest) -> float:
    """Bound the rounding of a product of scores for each pair of parties, and of each own part."""
    half = 2.0 ** -(request.scale_bits + 1)
    pairs = request.parties * (request.parties - 1) / 2
    return request.rows * pairs * (2 * request.score_limit * half + half * half) + (
        request.parties * 2.0 ** -(2 * request.scale_bits + 1)
    )


def _advice(request: PlanRequest) -> str:
    for scale_bits in range(request.scale_bits - 1, 0, -1):
        smaller = replace(request, scale_bits=scale_bits)
        if 3 * _largest_value(smaller) < 1 << (request.key_bits - 1):
            return f"set crypto.precision_bits to {scale_bits} or less, or use a longer key (crypto.key_bits)"
    key_bits = (3 * _largest_value(request)).bit_length() + 1
    return f"use a longer key: {key_bits} bits would do (crypto.key_bits)"
