"""What a passive party can read of the labels from the gradients that it receives (Li et al. 2022).

B runs these on its own gradients, with A's view of them: nothing here needs more than what A has, but for the
labels, which say how well it guessed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from common.nets.protect import Singles
from common.types import Floats, Ints

# Positive rows of a batch that the direction attack is taken to know, and those that tell the spectral
# attack's sign.
_KNOWN, _KNOWN_FOR_SIGN = 1, 5


@dataclass(frozen=True, slots=True)
class LabelLeak:
    """How well the attacks rank labels: AUC, 0.5 for guessing, 1 for all labels exactly; NaN if never
    defined.

    Attributes:
        norm: Mean over batches, by the gradients' norms: the rarer class has the larger ones.
        direction: Mean over batches, by the cosine to the gradient of one row that is known to be positive.
        over_epochs: Over rows, by the mean over all epochs of a row's coordinate along its batch's strongest
            direction (a singular vector): noise that is drawn anew averages out, flipped labels do not.
        batches: Batches that had both classes.
    """

    norm: float
    direction: float
    over_epochs: float
    batches: int


class GradientAttacks:
    """Watches the gradients of a training run."""

    def __init__(self, labels: Floats) -> None:
        """Start; `labels` (n,) are the true ones of the rows that are trained on."""
        self._labels = labels
        self._norm: list[float] = []
        self._direction: list[float] = []
        self._sums, self._counts = np.zeros(len(labels)), np.zeros(len(labels))

    def watch(self, rows: Ints, gradient: Singles) -> None:
        """Take what one party received for a batch, (b, width)."""
        labels = self._labels[rows]
        if not (0 < labels.sum() < len(labels)):
            return
        self._norm.append(norm_attack(gradient, labels))
        known = np.flatnonzero(labels == 1)[:_KNOWN]
        scores = direction_scores(gradient, gradient[known])
        others = np.ones(len(labels), dtype=np.bool_)
        others[known] = False
        self._direction.append(leak_auc(labels[others], scores[others]))
        signs = np.flatnonzero(labels == 1)[:_KNOWN_FOR_SIGN]
        others[signs] = False
        strongest = spectral_scores(gradient, signs)
        self._sums[rows[others]] += strongest[others]
        self._counts[rows[others]] += 1

    def result(self) -> LabelLeak:
        """Return what the attacks found out."""
        seen = self._counts > 0
        means = self._sums[seen] / self._counts[seen]
        return LabelLeak(
            _mean(self._norm), _mean(self._direction), leak_auc(self._labels[seen], means), len(self._norm)
        )


def norm_attack(gradient: Singles, labels: Floats) -> float:
    """Return the AUC of ‖g_i‖ for the labels of a batch."""
    return leak_auc(labels, np.linalg.norm(gradient.astype(np.float64), axis=1))


def direction_scores(gradient: Singles, known: Singles) -> Floats:
    """Return cos(g_i, mean of the gradients of rows known to be positive), (b,)."""
    exact, wanted = gradient.astype(np.float64), known.astype(np.float64).mean(axis=0)
    norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(wanted)
    cosines: Floats = np.divide(exact @ wanted, norms, out=np.zeros(len(exact)), where=norms > 0)
    return cosines


def spectral_scores(gradient: Singles, known: Ints) -> Floats:
    """Return coordinates along the first singular vector, (b,), of mean square 1, above 0 for known
    positives."""
    left, _, _ = np.linalg.svd(gradient.astype(np.float64), full_matrices=False)
    scores: Floats = left[:, 0] * np.sqrt(len(gradient))
    return scores if scores[known].sum() >= 0 else -scores


def leak_auc(labels: Floats, scores: Floats) -> float:
    """Return the AUC of scores, or of their opposite if that is larger; NaN for one class."""
    positive = labels > 0.5
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros:
        return math.nan
    auc = (rankdata(scores)[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros)
    return float(max(auc, 1.0 - auc))


def _mean(values: list[float]) -> float:
    known = [one for one in values if not math.isnan(one)]
    return float(np.mean(known)) if known else math.nan
