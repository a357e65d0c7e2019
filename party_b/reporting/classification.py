"""How good a classifier is, how good B alone would have been, and how far the Taylor loss is off."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from common.glm.labels import SignedLabels
from common.glm.logistic import fit_logistic, fit_taylor
from common.glm.losses import TAYLOR_LOGISTIC, logistic_loss, probabilities
from common.glm.metrics import classification_metrics
from common.glm.ridge import penalties, with_intercept
from common.types import Floats, Ints
from party_b.reporting.evaluation import Evaluation, Lift, Metrics, Objective, ScoredRows, interval


def evaluate_classifier(rows: ScoredRows, labels: SignedLabels, objective: Objective) -> Evaluation:
    """Measure the federation's scores, and B alone: the exact logistic fit on B's own training rows.

    The federation minimises the Taylor form of the logistic loss, and so does the line of B alone in the
    report's curve; metrics compare the federation with B's exact fit, which is the better of the two for B.

    Raises:
        NumericError: A score is not finite.
    """
    features, y = rows.features[rows.train], labels.values[rows.train]
    exact = fit_logistic(features, y, objective.l2, objective.intercept)
    local = with_intercept(rows.features, objective.intercept) @ exact
    return Evaluation(
        train=_metrics(labels, rows.scores, rows.train),
        test=_metrics(labels, rows.scores, rows.test) if len(rows.test) else None,
        lift=_lift(rows, labels, local),
        local_objective=_taylor_alone(features, y, objective),
        losses=_losses(rows, labels),
        notes=(labels.describe(), _distance(rows, labels)),
    )


def classified(
    rows: ScoredRows, labels: SignedLabels, local_scores: Floats, local_objective: float
) -> Evaluation:
    """Measure the federation's scores beside those of B alone, found elsewhere at its own optimum.

    Raises:
        NumericError: A score is not finite.
    """
    return Evaluation(
        train=_metrics(labels, rows.scores, rows.train),
        test=_metrics(labels, rows.scores, rows.test) if len(rows.test) else None,
        lift=_lift(rows, labels, local_scores),
        local_objective=local_objective,
    )


def _metrics(labels: SignedLabels, scores: Floats, chosen: Ints) -> Metrics:
    return classification_metrics(labels.as_01[chosen], scores[chosen], probabilities(scores[chosen]))


def _lift(rows: ScoredRows, labels: SignedLabels, local: Floats) -> Lift:
    partition, chosen = rows.measured
    y = labels.values[chosen]
    gain, half_width = interval(
        np.logaddexp(0.0, -y * local[chosen]) - np.logaddexp(0.0, -y * rows.scores[chosen])
    )
    return Lift(
        partition=partition,
        rows=len(chosen),
        local=_metrics(labels, local, chosen),
        federated=_metrics(labels, rows.scores, chosen),
        gain=gain,
        half_width=half_width,
        measure="log_loss",
    )


def _taylor_alone(features: Floats, y: Floats, objective: Objective) -> float:
    weights = fit_taylor(features, y, objective.l2, objective.intercept)
    penalty = penalties(features.shape[1], objective.l2, objective.intercept)
    scores = with_intercept(features, objective.intercept) @ weights
    return TAYLOR_LOGISTIC.mean(scores, y) + 0.5 * float(penalty @ weights**2)


def _losses(rows: ScoredRows, labels: SignedLabels) -> Mapping[str, Metrics]:
    parts = {"train": rows.train, "test": rows.test}
    return {
        name: {
            "taylor": TAYLOR_LOGISTIC.mean(rows.scores[chosen], labels.values[chosen]),
            "logistic": logistic_loss(rows.scores[chosen], labels.values[chosen]),
        }
        for name, chosen in parts.items()
        if len(chosen)
    }


def _distance(rows: ScoredRows, labels: SignedLabels) -> str:
    train = _losses(rows, labels)["train"]
    largest = float(np.abs(rows.scores[rows.train]).max())
    return (
        f"the training minimised the second-order Taylor form of the logistic loss, {train['taylor']:.4g} on "
        f"the training rows without the penalty, where the exact logistic loss of the same scores is "
        f"{train['logistic']:.4g}; the two agree near score 0, and the largest score is {largest:.3g}"
    )
