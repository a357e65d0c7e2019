"""Losses that are quadratic in the score: what additive encryption can minimise.

    d = a·u − b·y        loss = d² / (2a) + c  a row;  its derivative for a column x is  d·x

with u the sum of all parties' partial scores. The squared loss is a = b = 1, c = 0. The logistic loss with
y ∈ {−1, +1}, to the second order around u = 0, is ln 2 − ½ y u + ⅛ u², that is a = ¼, b = ½, c = ln 2 − ½
(Hardy et al. 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from common.types import Floats


@dataclass(frozen=True, slots=True)
class QuadraticLoss:
    """One loss of the family.

    Attributes:
        name: For reports.
        curvature: a, the second derivative by the score.
        label_factor: b.
        constant: c, what a row costs at the minimum of its own term.
    """

    name: str
    curvature: float
    label_factor: float
    constant: float

    def residuals(self, scores: Floats, labels: Floats) -> Floats:
        """Return d = a·u − b·y, (n,)."""
        return self.curvature * scores - self.label_factor * labels

    def of_residuals(self, square_sum: float, rows: int) -> float:
        """Return the sum-form loss of rows from Σ d²."""
        return square_sum / (2 * self.curvature) + rows * self.constant

    def mean(self, scores: Floats, labels: Floats) -> float:
        """Return the mean loss of at least one row, without a penalty."""
        d = self.residuals(scores, labels)
        return self.of_residuals(float(d @ d), len(d)) / len(d)


SQUARED = QuadraticLoss("squared", 1.0, 1.0, 0.0)
TAYLOR_LOGISTIC = QuadraticLoss("logistic, second-order Taylor", 0.25, 0.5, math.log(2) - 0.5)


def logistic_loss(scores: Floats, labels: Floats) -> float:
    """Return the mean of ln(1 + e^(−y·u)), labels −1 and +1: what the Taylor form stands for."""
    return float(np.mean(np.logaddexp(0.0, -labels * scores)))


def probabilities(scores: Floats) -> Floats:
    """Return 1 / (1 + e^(−u)): the probability of +1 that a logistic score stands for."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * scores)))
