"""Losses of a score for plaintext training, and the penalties that go with them (Zhang et al. 2021).

objective   (1/n) Σ_i loss(z_i, y_i) + Σ_l g(w_l),   z_i = Σ_l w_l·x_l,i;   θ_i = ∂loss(z_i, y_i)/∂z_i

logistic    ln(1 + e^(−y z)), y ∈ {−1, +1}     θ = −y / (1 + e^(y z))
squared     ½ (z − y)²                         θ = z − y
robust      ln(u²/2 + 1), u = z − y            θ = u / (1 + u²/2)

ridge       g = ½ Σ l2_j w_j²                  ∇g = l2 w
saturating  g = ½ Σ l2_j w_j² / (1 + w_j²)     ∇g = l2 w / (1 + w²)²      (not convex)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import numpy as np

from common.glm.losses import SQUARED, logistic_loss
from common.types import Floats

LossName: TypeAlias = Literal["logistic", "logistic_nonconvex", "squared", "robust"]


class ScoreLoss(Protocol):
    """A loss of the joint score; only parties with labels know it."""

    def mean(self, scores: Floats, labels: Floats) -> float:
        """Return the mean loss of at least one row, without a penalty."""
        ...

    def thetas(self, scores: Floats, labels: Floats) -> Floats:
        """Return the derivative by the score of every row, (n,).

        Whoever gets these and knows the loss can compute labels and scores from them.
        """
        ...


class Logistic:
    """ln(1 + e^(−y z)) for labels −1 and +1."""

    def mean(self, scores: Floats, labels: Floats) -> float:
        """Return the mean loss."""
        return logistic_loss(scores, labels)

    def thetas(self, scores: Floats, labels: Floats) -> Floats:
        """Return −y / (1 + e^(y z)); the form with tanh overflows nowhere."""
        return np.asarray(-0.5 * labels * (1.0 - np.tanh(0.5 * labels * scores)))


class Squared:
    """½ (z − y)²."""

    def mean(self, scores: Floats, labels: Floats) -> float:
        """Return the mean loss."""
        return SQUARED.mean(scores, labels)

    def thetas(self, scores: Floats, labels: Floats) -> Floats:
        """Return z − y."""
        return scores - labels


class Robust:
    """ln((z − y)²/2 + 1): an outlier's pull falls off with its distance."""

    def mean(self, scores: Floats, labels: Floats) -> float:
        """Return the mean loss."""
        return float(np.mean(np.log1p(0.5 * (scores - labels) ** 2)))

    def thetas(self, scores: Floats, labels: Floats) -> Floats:
        """Return u / (1 + u²/2), u = z − y."""
        u = scores - labels
        return np.asarray(u / (1.0 + 0.5 * u**2))


class Penalty(Protocol):
    """g of one party's block."""

    def value(self, weights: Floats) -> float:
        """Return g(w)."""
        ...

    def gradient(self, weights: Floats) -> Floats:
        """Return ∇g(w), (d,)."""
        ...


@dataclass(frozen=True, slots=True)
class Ridge:
    """½ Σ l2_j w_j².

    Attributes:
        l2: One for each column, (d,); 0 for an intercept that is not penalised.
    """

    l2: Floats = field(repr=False)

    def value(self, weights: Floats) -> float:
        """Return g(w)."""
        return float(0.5 * np.sum(self.l2 * weights**2))

    def gradient(self, weights: Floats) -> Floats:
        """Return l2 w."""
        return np.asarray(self.l2 * weights)


@dataclass(frozen=True, slots=True)
class Saturating:
    """½ Σ l2_j w_j² / (1 + w_j²): large weights cost no more than l2/2.

    Attributes:
        l2: One for each column, (d,); 0 for an intercept that is not penalised.
    """

    l2: Floats = field(repr=False)

    def value(self, weights: Floats) -> float:
        """Return g(w)."""
        return float(0.5 * np.sum(self.l2 * weights**2 / (1.0 + weights**2)))

    def gradient(self, weights: Floats) -> Floats:
        """Return l2 w / (1 + w²)²."""
        return np.asarray(self.l2 * weights / (1.0 + weights**2) ** 2)


def loss_named(name: LossName) -> ScoreLoss:
    """Return the loss that a job names; the two logistic ones differ in their penalty only."""
    losses: dict[LossName, ScoreLoss] = {
        "logistic": Logistic(),
        "logistic_nonconvex": Logistic(),
        "squared": Squared(),
        "robust": Robust(),
    }
    return losses[name]


def penalty_named(name: LossName, l2: Floats) -> Penalty:
    """Return the penalty of the loss that a job names, with one l2 for each column of a party."""
    return Saturating(l2) if name == "logistic_nonconvex" else Ridge(l2)
