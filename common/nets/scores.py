"""How good a network's predictions are, and when its training has gone far enough."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from common.errors import NumericError
from common.glm.metrics import classification_metrics
from common.nets.recipe import Patience
from common.types import Floats


@dataclass(frozen=True, slots=True)
class Scores:
    """Of some labelled rows: aggregates that B may print.

    Attributes:
        auc: NaN when the rows lack a class.
        log_loss: Mean cross-entropy.
        calibration_error: Mean over ten equally full bins of |mean prediction − share of 1|, by rows.
        base_loss: Cross-entropy of predicting the share of 1 for every row; NaN where nobody asked.
    """

    auc: float
    log_loss: float
    calibration_error: float
    base_loss: float = math.nan


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Rows with neighbouring predictions."""

    rows: int
    predicted: float
    observed: float


def scores_of(labels: Floats, logits: Floats) -> Scores:
    """Return how well logits fit labels of 0 and 1.

    Raises:
        NumericError: There is no row, or a logit is not finite.
    """
    chances = probabilities(logits)
    found = classification_metrics(labels, logits, chances)
    bins = calibration(labels, chances)
    error = sum(one.rows * abs(one.predicted - one.observed) for one in bins) / len(labels)
    return Scores(found["auc"], found["log_loss"], error, _base_loss(labels))


def auc_gain(labels: Floats, scores: Floats, others: Floats) -> tuple[float, float]:
    """Return by how much the AUC of scores is above that of others on the same rows, and its standard error.

    Paired, by the placements of each row among those of the other class (DeLong et al. 1988). NaN, where a
    class has less than two rows.
    """
    positive = labels == 1.0
    counts = int(positive.sum()), int((~positive).sum())
    if min(counts) < 2:
        return math.nan, math.nan
    placements = _placements(scores, positive) - _placements(others, positive)
    of_ones, of_zeros = placements[positive], placements[~positive]
    variance = of_ones.var(ddof=1) / counts[0] + of_zeros.var(ddof=1) / counts[1]
    return float(of_ones.mean()), math.sqrt(variance)


def _placements(scores: Floats, positive: np.typing.NDArray[np.bool_]) -> Floats:
    """Return for each row the share of rows of the other class that it stands on the right side of."""
    among_all, placements = rankdata(scores), np.empty(len(scores))
    for own in (positive, ~positive):
        others = len(scores) - int(own.sum())
        placements[own] = (among_all[own] - rankdata(scores[own])) / others
    placements[~positive] = 1.0 - placements[~positive]
    return placements


def _base_loss(labels: Floats) -> float:
    share = float(labels.mean())
    return -sum(part * math.log(part) for part in (share, 1.0 - share) if part > 0)


def calibration(labels: Floats, chances: Floats, bins: int = 10) -> list[CalibrationBin]:
    """Return predictions beside what happened, in bins of equally many rows."""
    order = np.argsort(chances, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return [
        CalibrationBin(len(part), float(chances[part].mean()), float(labels[part].mean())) for part in parts
    ]


def probabilities(logits: Floats) -> Floats:
    """Return σ of logits, without overflow."""
    positive = 1.0 / (1.0 + np.exp(-np.abs(logits)))
    return np.where(logits >= 0, positive, 1.0 - positive)


class EarlyStopping:
    """Keeps count of the best epoch; epochs are counted from 1.

    A network whose validation loss is still above that of the base rate has learnt nothing yet: its AUC is
    chance, which may look good on few rows. Patience begins with the first epoch below, and so does the count
    of the best.
    """

    def __init__(self, patience: Patience) -> None:
        """Start before the first epoch."""
        self._patience = patience
        self._by_loss = patience.stop == "log_loss"
        self.best_epoch = 0
        self.epoch = 0
        self._best = -math.inf
        self._learnt = False

    def better(self, scores: Scores) -> bool:
        """Take the scores of the next epoch's validation; tell whether it is the best so far.

        An AUC that validation rows of one class leave undefined gives way to the log loss, for good.

        Raises:
            NumericError: The log loss is not finite.
        """
        if not math.isfinite(scores.log_loss):
            raise NumericError("the validation loss is not finite", advice="lower the learning rate")
        if math.isnan(scores.auc) and not self._by_loss:
            self._by_loss, self._best = True, -math.inf
        score = -scores.log_loss if self._by_loss else scores.auc
        self.epoch += 1
        if not self._learnt and not scores.log_loss > scores.base_loss:
            self._learnt, self._best = True, -math.inf
        if score > self._best:
            self._best, self.best_epoch = score, self.epoch
            return True
        return False

    @property
    def best(self) -> tuple[bool, float]:
        """Whether the network has learnt anything, and the best score; larger is better on the same rows."""
        return self._learnt, self._best

    @property
    def ended(self) -> bool:
        """Whether training is over."""
        waited = self.epoch - self.best_epoch if self._learnt else 0
        return self.epoch >= self._patience.most_epochs or waited >= self._patience.patience

    def to_json(self) -> dict[str, object]:
        """Return where it stands, for a checkpoint."""
        best = self._best if math.isfinite(self._best) else None
        return {
            "epoch": self.epoch,
            "best_epoch": self.best_epoch,
            "best": best,
            "by_loss": self._by_loss,
            "learnt": self._learnt,
        }

    @classmethod
    def from_json(cls, document: dict[str, object], patience: Patience) -> EarlyStopping:
        """Return what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: The document is something else.
        """
        stopping = cls(patience)
        epoch, best_epoch, best = document["epoch"], document["best_epoch"], document["best"]
        if not isinstance(epoch, int) or not isinstance(best_epoch, int) or best_epoch > epoch:
            raise ValueError("no state of early stopping")
        if best is not None:
            if not isinstance(best, float | int):
                raise TypeError("the best score is a number")
            stopping._best = float(best)
        stopping.epoch, stopping.best_epoch = epoch, best_epoch
        stopping._by_loss, stopping._learnt = bool(document["by_loss"]), bool(document["learnt"])
        return stopping
