"""The noise of Marvell: Li et al. 2022, "Label leakage and protection in two-party split learning", theorem
2.

With class c's gradients ~ N(ḡ_c, v_c·I), Δ = ḡ₁ − ḡ₀, g = ‖Δ‖², d dimensions and p = share of class 1, the
optimal noise has power a_c along Δ and b_c in each other direction. It minimises

    (d−1)·[(b₀+v₀)/(b₁+v₁) + (b₁+v₁)/(b₀+v₀)] + (a₀+v₀+g)/(a₁+v₁) + (a₁+v₁+g)/(a₀+v₀)

subject to p·(a₁ + (d−1)·b₁) + (1−p)·(a₀ + (d−1)·b₀) ≤ P and 0 ≤ b_c ≤ a_c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from common.types import Floats

# Variances are divided by g; below this a class has none, and the ratios would divide by zero.
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class NoisePowers:
    """Variances of the noise by class, along Δ and across it.

    Attributes:
        direction: Δ/‖Δ‖, (width,).
    """

    along_0: float
    across_0: float
    along_1: float
    across_1: float
    direction: Floats


def noise_powers(gradient: Floats, positive: npt.NDArray[np.bool_], power: float) -> NoisePowers:
    """Return the optimal noise for a batch that has both classes; P = power·‖Δ‖².

    Args:
        gradient: (b, width).
        positive: (b,), where the label is 1.
        power: Above 0.
    """
    means = [gradient[~positive].mean(axis=0), gradient[positive].mean(axis=0)]
    difference = means[1] - means[0]
    size = float(difference @ difference)
    width = gradient.shape[1]
    if size == 0.0:
        return NoisePowers(0.0, 0.0, 0.0, 0.0, np.zeros(width))
    own = [
        float(np.square(part - mean).mean()) / size
        for part, mean in zip((gradient[~positive], gradient[positive]), means, strict=True)
    ]
    share = float(positive.mean())
    along_0, across_0, along_1, across_1 = _optimum(own, share, power, width) * size
    return NoisePowers(along_0, across_0, along_1, across_1, difference / np.sqrt(size))


def _optimum(own: list[float], share: float, power: float, width: int) -> Floats:
    """Return a₀, b₀, a₁, b₁ in units of g."""
    v0, v1 = (max(one, _LEAST_VARIANCE) for one in own)
    others = width - 1
    costs = np.array([1 - share, (1 - share) * others, share, share * others])

    def divergence(x: Floats) -> float:
        a0, b0, a1, b1 = x + np.array([v0, v0, v1, v1])
        return float(others * (b0 / b1 + b1 / b0) + (a0 + 1) / a1 + (a1 + 1) / a0)

    def slope(x: Floats) -> Floats:
        a0, b0, a1, b1 = x + np.array([v0, v0, v1, v1])
        along = [1 / a1 - (a1 + 1) / a0**2, 1 / a0 - (a0 + 1) / a1**2]
        across = [others * (1 / b1 - b1 / b0**2), others * (1 / b0 - b0 / b1**2)]
        return np.array([along[0], across[0], along[1], across[1]])

    def bounds(x: Floats) -> Floats:
        return np.array([power - costs @ x, x[0] - x[1], x[2] - x[3]])

    slopes = np.array([-costs, [1, -1, 0, 0], [0, 0, 1, -1]], dtype=np.float64)
    start = np.array([power, 0.0, power, 0.0])
    found = minimize(
        divergence,
        start,
        jac=slope,
        method="SLSQP",
        bounds=[(0.0, None)] * 4,
        constraints=[{"type": "ineq", "fun": bounds, "jac": lambda x: slopes}],
        options={"maxiter": 100, "ftol": 1e-8},
    )
    best = found.x if np.isfinite(found.x).all() and divergence(found.x) <= divergence(start) else start
    best = np.maximum(best, 0.0)
    # The solver may miss the bound by its tolerance; the power is what was promised.
    return np.asarray(best * min(1.0, power / max(float(costs @ best), 1e-300)))
