"""How one party moves its block of the weights: what it multiplies in a round, what it does with the answer.

Every round computes one vector for all parties, X_k'd for each block k, from one block a party:

    d = a · Σ_k X_k v_k − λ · b·y            with v_k the party's block, λ 1 or 0

Gradient descent sends its weights, v = w and λ = 1. Conjugate gradients send a search direction, and λ = 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from common.errors import LocalProtocolError, NumericError
from common.glm.gradient_descent import GradientStep
from common.glm.losses import QuadraticLoss
from common.types import Floats

SolverState: TypeAlias = Mapping[str, Sequence[float]]
"""A block between two rounds, to be kept on its party's own disk."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where a round evaluates X'd.

    Attributes:
        block: v_k, one party's part, (d,).
        label_weight: λ: 1 with the labels, 0 without them.
    """

    block: Floats = field(repr=False)
    label_weight: float


class BlockSolver(Protocol):
    """One party's block of the weights, and how a round moves it."""

    @property
    def loss(self) -> QuadraticLoss:
        """The loss that all parties minimise together."""
        ...

    @property
    def weights(self) -> Floats:
        """The block's weights so far, (d,)."""
        ...

    def point(self) -> Point:
        """Return what the next round evaluates; asking twice changes nothing."""
        ...

    def receive(self, product: Floats, rows: int) -> None:
        """Take X_k'd of the round, summed over its rows, (d,)."""
        ...

    def penalty(self) -> float:
        """Return ½ Σ l2_j w_j²: the block's part of the regulariser, in mean form."""
        ...

    def state(self) -> SolverState:
        """Return the block between two rounds: after `receive`, or after `advance` where there is one."""
        ...

    def restore(self, state: SolverState) -> None:
        """Go back to a state, bit by bit; LocalProtocolError if it is of another block."""
        ...


class GradientDescent:
    """w ← w − η (X'd/n + l2·w), from zero."""

    def __init__(self, step: GradientStep, loss: QuadraticLoss) -> None:
        self.loss = loss
        self.weights: Floats = np.zeros(len(step.features))
        self._step = step

    def point(self) -> Point:
        """Return the weights."""
        return Point(self.weights, 1.0)

    def receive(self, product: Floats, rows: int) -> None:
        """Update the weights."""
        self.weights = self._step.apply(self.weights, product, rows)

    def penalty(self) -> float:
        """Return ½ Σ l2_j w_j²."""
        return self._step.penalty(self.weights)

    def state(self) -> SolverState:
        """Return the weights."""
        return {"weights": self.weights.tolist()}

    def restore(self, state: SolverState) -> None:
        """Go back to a state's weights."""
        self.weights = _restored(state, "weights", len(self.weights))


@dataclass(frozen=True, slots=True, eq=False)
class BlockSystem:
    """One party's diagonal block of H w = b·X'y/n, H = a·X'X/n + diag(l2).

    Attributes:
        features: Names of the columns, for messages.
        hessian: a·X_k'X_k/n + diag(l2) over the training rows, (d, d); the party computes it in the clear.
        penalties: l2 of each column, (d,); 0 for an intercept that is not penalised.
        loss: The loss.
    """

    features: tuple[str, ...]
    hessian: Floats = field(repr=False)
    penalties: Floats
    loss: QuadraticLoss

    @classmethod
    def of(
        cls, features: tuple[str, ...], rows: Floats, penalties: Floats, loss: QuadraticLoss
    ) -> BlockSystem:
        """Return the block of these training rows, (n, d)."""
        hessian = loss.curvature * (rows.T @ rows) / len(rows) + np.diag(penalties)
        return cls(features, hessian, penalties, loss)

    def inverse(self) -> Floats:
        """Return the pseudo-inverse of the block: columns that say the same share one direction."""
        values, vectors = np.linalg.eigh(self.hessian)
        # Eigenvalues below the rounding of the largest are zero but for rounding.
        kept = values > len(values) * np.finfo(np.float64).eps * max(float(values[-1]), 0.0)
        return np.asarray(vectors[:, kept] / values[kept] @ vectors[:, kept].T)


class ConjugateBlock:
    """One party's block of preconditioned conjugate gradients (Hestenes, Stiefel 1952; PROTOCOLS §1.5).

    round 1     product at w, with labels       r = −(X'd/n + l2∘w)                  the block of the residual
    round 2 …   product at σ·p, without labels  q = X'd/(σ n) + l2∘p                 the block of H p
    advance     w ← w + α p,  r ← r − α q,  z = M⁻¹ r                                M: the own diagonal block
    turn        p ← z + β p

    α and β come from sums over all parties of p·q and r·z. σ is a power of two that brings the scores of σ·p
    to about 1: however small the last directions are, they keep all bits of the fixed-point scale.
    """

    def __init__(self, system: BlockSystem, start: Floats) -> None:
        """Begin at `start`, (d,), which differs from zero at most at the active party."""
        self.loss = system.loss
        self.weights: Floats = start
        self._system = system
        self._inverse = system.inverse()
        self._residual: Floats | None = None
        self._preconditioned: Floats = np.zeros_like(start)
        self._direction: Floats = np.zeros_like(start)
        self._image: Floats | None = None
        self._scale = 1.0

    def point(self) -> Point:
        """Return the weights with labels in the first round, the scaled direction without them later."""
        if self._residual is None:
            return Point(self.weights, 1.0)
        return Point(self._scale * self._direction, 0.0)

    def receive(self, product: Floats, rows: int) -> None:
        """Take the residual from the first round's product, the image of the direction from a later one's."""
        penalties = self._system.penalties
        if self._residual is None:
            self._residual = -(product / rows + penalties * self.weights)
        else:
            self._image = product / (rows * self._scale) + penalties * self._direction

    def curvature_part(self) -> float:
        """Return p_k·q_k: what this party tells the active one in a round; 0 in the first round."""
        return 0.0 if self._image is None else float(self._direction @ self._image)

    def advance(self, step: float) -> float:
        """Move the weights along the direction by α; return r_k·z_k, the block's part of the new residual.

        Raises:
            LocalProtocolError: No product of this round has been received.
            NumericError: A weight is no longer finite; names its feature.
        """
        if self._residual is None:
            raise LocalProtocolError("conjugate gradients cannot advance before the first product")
        if self._image is not None:
            self.weights = self._finite(self.weights + step * self._direction)
            self._residual = self._residual - step * self._image
            self._image = None
        self._preconditioned = self._inverse @ self._residual
        return float(self._residual @ self._preconditioned)

    def turn(self, mixing: float, scale: float) -> None:
        """Take the next direction z + β p, and the scale σ at which it is multiplied."""
        self._direction = self._preconditioned + mixing * self._direction
        self._scale = scale

    def penalty(self) -> float:
        """Return ½ Σ l2_j w_j²."""
        return float(0.5 * np.sum(self._system.penalties * self.weights**2))

    def state(self) -> SolverState:
        """Return everything that the next turn takes.

        Raises:
            LocalProtocolError: A round is under way, or none has been.
        """
        if self._residual is None or self._image is not None:
            raise LocalProtocolError("conjugate gradients are kept only between a step and the next product")
        return {
            "weights": self.weights.tolist(),
            "residual": self._residual.tolist(),
            "preconditioned": self._preconditioned.tolist(),
            "direction": self._direction.tolist(),
        }

    def restore(self, state: SolverState) -> None:
        """Go back to a state; the next turn follows."""
        size = len(self.weights)
        self.weights = _restored(state, "weights", size)
        self._residual = _restored(state, "residual", size)
        self._preconditioned = _restored(state, "preconditioned", size)
        self._direction = _restored(state, "direction", size)
        self._image = None

    def _finite(self, weights: Floats) -> Floats:
        broken = np.flatnonzero(~np.isfinite(weights))
        if broken.size:
            name = self._system.features[int(broken[0])]
            raise NumericError(f"the weight of feature {name!r} is no longer finite")
        return weights


def _restored(state: SolverState, name: str, size: int) -> Floats:
    values = np.array(state.get(name, ()), dtype=np.float64)
    if values.shape != (size,):
        raise LocalProtocolError(f"the kept {name} are those of another block")
    return values
