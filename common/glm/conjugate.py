"""The scalars of conjugate gradients: what the active party adds up, and what it tells everybody.

Two numbers a round come from each party, its parts of p·q and of r·z; three go back: α, β and the scale
σ. Conjugate gradients on M⁻¹H, M the block diagonal of H, end in exact arithmetic after as many steps as
M⁻¹H has different eigenvalues. For two parties that is at most 2·min(d_A, d_B) + 1, d_B with the intercept,
because M⁻¹H − I has rank 2·min(d_A, d_B) at most.

The loss needs nobody's help: a step along p lowers the objective by exactly ½ α r·z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from common.errors import LocalProtocolError, NumericError

# Relative size of the residual at which a job without a tolerance stops.
DEFAULT_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True)
class Turn:
    """What everybody needs for the next direction.

    Attributes:
        mixing: β.
        scale: σ, a power of two.
    """

    mixing: float
    scale: float


class ConjugateScalars:
    """Keeps α, β, σ, the objective, and whether the residual is small enough."""

    def __init__(self, tolerance: float | None, objective: float, gained: float) -> None:
        """Begin at the start weights.

        Args:
            tolerance: Relative size of the residual, in the norm of M⁻¹, at which to stop.
            objective: Mean-form objective at the start.
            gained: b_B·w_B of the start: the part of the right-hand side's norm that the start used up.
        """
        self.objective = objective
        self._tolerance = DEFAULT_TOLERANCE if tolerance is None else tolerance
        self._gained = gained
        self._size = 0.0
        self._residual: float | None = None

    def state(self) -> tuple[float, float, float]:
        """Return what a later round needs, to be kept on the active party's own disk."""
        if self._residual is None:
            raise LocalProtocolError("conjugate gradients are kept only after a round")
        return (self.objective, self._size, self._residual)

    def restore(self, state: tuple[float, float, float]) -> None:
        """Go back to a state."""
        self.objective, self._size, self._residual = state

    @property
    def converged(self) -> bool:
        """Whether the preconditioned residual is below the tolerance, relative to the right-hand side."""
        if self._residual is None:
            return False
        return self._residual <= self._tolerance**2 * self._size

    def step(self, curvature: float) -> float:
        """Return α from p·q, summed over all parties.

        Raises:
            NumericError: p·q is not positive, though p is not zero: the fixed-point scale is too coarse.
        """
        if self._residual is None:
            return 0.0  # the first round only computes the residual
        if not (math.isfinite(curvature) and curvature > 0):
            raise NumericError(
                "conjugate gradients met a direction without curvature: the problem is too ill-conditioned "
                "for this precision",
                advice="Raise crypto.precision_bits, standardize the features, or use a larger model.l2.",
            )
        step = self._residual / curvature
        self.objective -= 0.5 * step * self._residual
        return step

    def turn(self, residual: float) -> Turn:
        """Return β and σ from r·z, summed over all parties.

        Raises:
            NumericError: r·z is not a number that a sum of squares can be.
        """
        if not (math.isfinite(residual) and residual >= 0):
            raise NumericError("the residual of conjugate gradients is no longer finite")
        if self._residual is None:
            self._size = residual + self._gained
            mixing = 0.0
        elif self._residual == 0:
            raise LocalProtocolError("conjugate gradients went on after their end")
        else:
            mixing = residual / self._residual
        self._residual = residual
        # p·Hp is close to r·z, so σ² r·z close to 1 makes the scores of σ·p close to 1. A power of two
        # changes no digit of p.
        scale = 1.0 if residual == 0 else 2.0 ** -round(math.log2(residual) / 2)
        return Turn(mixing, scale)
