"""How good the federation's scores are, and how good B would have been alone ("lift")."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from common.errors import LocalProtocolError
from common.glm.metrics import regression_metrics
from common.glm.ridge import Intercept, fit_ridge, penalties
from common.types import Floats, Ints

Metrics: TypeAlias = Mapping[str, float]
Partition: TypeAlias = Literal["train", "test"]

# Two-sided 95 % of the normal distribution.
_Z_95 = 1.959963984540054


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """B's own view of all aligned rows after training; may be seen by B alone.

    Attributes:
        features: B's features as trained on (standardised if the job says so), (n, d_B), no intercept column.
        labels: (n,).
        scores: The federation's predictions, (n,).
        train: Positions of the training rows.
        test: Positions of the test rows; may be empty.
    """

    features: Floats = field(repr=False)
    labels: Floats = field(repr=False)
    scores: Floats = field(repr=False)
    train: Ints = field(repr=False)
    test: Ints = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse arrays that do not speak of the same rows."""
        lengths = {len(self.features), len(self.labels), len(self.scores), len(self.train) + len(self.test)}
        if len(lengths) != 1:
            raise LocalProtocolError(f"features, labels, scores and split have lengths {sorted(lengths)}")

    @property
    def measured(self) -> tuple[Partition, Ints]:
        """The rows that a comparison is made on: the training rows only when there are no test rows."""
        return ("test", self.test) if len(self.test) else ("train", self.train)


@dataclass(frozen=True, slots=True)
class Objective:
    """The job's objective, under which B alone is fitted as well."""

    l2: float
    intercept: Intercept


@dataclass(frozen=True, slots=True)
class Lift:
    """B alone against the federation, on the same rows.

    Attributes:
        partition: Which rows; the training rows only when there are no test rows.
        rows: How many.
        local: Metrics of B alone.
        federated: Metrics of the federation.
        gain: `measure` of B alone minus the federation's; above 0 when the federation helps.
        half_width: Half of the 95 % interval of `gain`, from the row-by-row differences; NaN for one row.
        measure: Which of the metrics `gain` is about; the smaller the better.
        others: Metrics of further methods on the same rows, by name.
    """

    partition: Partition
    rows: int
    local: Metrics
    federated: Metrics
    gain: float
    half_width: float
    measure: Literal["mse", "log_loss"] = "mse"
    others: Mapping[str, Metrics] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the `lift` of report.json."""
        return {
            "local": {self.partition: dict(self.local)},
            "federated": {self.partition: dict(self.federated)},
            **{name: {self.partition: dict(metrics)} for name, metrics in self.others.items()},
            f"{self.measure}_gain": self.gain,
            f"{self.measure}_gain_half_width_95": self.half_width,
        }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything that is measured after the last round.

    Attributes:
        train: The federation's metrics on the training rows.
        test: The same on the test rows, None without any.
        lift: B alone against the federation.
        local_objective: The training objective of B alone at its optimum, in the mean form of the loss.
        losses: By partition and name, mean losses without a penalty, where there is more than one loss to
            speak of.
        notes: Sentences for the report.
    """

    train: Metrics
    test: Metrics | None
    lift: Lift
    local_objective: float
    losses: Mapping[str, Metrics] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def metrics(self) -> dict[str, Metrics | None]:
        """Return the `metrics` of report.json."""
        return {"train": self.train, "test": self.test}


def evaluate_regression(rows: ScoredRows, objective: Objective) -> Evaluation:
    """Measure the federation's scores, and B alone: the closed-form fit on B's own training rows.

    Raises:
        NumericError: A score is not finite.
    """
    features, labels = rows.features[rows.train], rows.labels[rows.train]
    weights = fit_ridge(features, labels, objective.l2, objective.intercept)
    penalty = penalties(features.shape[1], objective.l2, objective.intercept)
    own = features.shape[1]
    local_scores = rows.features @ weights[:own] + weights[own:].sum()
    return Evaluation(
        train=_metrics(rows, rows.scores, rows.train),
        test=_metrics(rows, rows.scores, rows.test) if len(rows.test) else None,
        lift=_lift(rows, local_scores),
        local_objective=_objective(local_scores[rows.train] - labels, weights, penalty),
    )


def _objective(residuals: Floats, weights: Floats, penalty: Floats) -> float:
    """Return the mean form of the objective, as `ridge_objective` does, where scores are known already."""
    return float(0.5 * (residuals @ residuals) / len(residuals) + 0.5 * (penalty @ weights**2))


def regressed(rows: ScoredRows, local_scores: Floats, local_objective: float) -> Evaluation:
    """Measure the federation's scores beside those of B alone, found elsewhere at its own optimum."""
    return Evaluation(
        train=_metrics(rows, rows.scores, rows.train),
        test=_metrics(rows, rows.scores, rows.test) if len(rows.test) else None,
        lift=_lift(rows, local_scores),
        local_objective=local_objective,
    )


def predictions_csv(ids: Sequence[str], rows: ScoredRows) -> bytes:
    """Return the test rows as CSV: id, partition, y, score; UTF-8 without a mark, numbers to the last bit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "partition", "y", "score"])
    for row in rows.test:
        writer.writerow([ids[row], "test", repr(float(rows.labels[row])), repr(float(rows.scores[row]))])
    return text.getvalue().encode()


def _metrics(rows: ScoredRows, scores: Floats, chosen: Ints) -> Metrics:
    return regression_metrics(rows.labels[chosen], scores[chosen])


def _lift(rows: ScoredRows, local_scores: Floats) -> Lift:
    partition, chosen = rows.measured
    labels = rows.labels[chosen]
    gain, half_width = interval((local_scores[chosen] - labels) ** 2 - (rows.scores[chosen] - labels) ** 2)
    return Lift(
        partition=partition,
        rows=len(chosen),
        local=_metrics(rows, local_scores, chosen),
        federated=_metrics(rows, rows.scores, chosen),
        gain=gain,
        half_width=half_width,
    )


def interval(differences: Floats) -> tuple[float, float]:
    """Return the mean of row-by-row differences and half of its 95 % interval, NaN for one row."""
    count = len(differences)
    spread = float(np.std(differences, ddof=1)) if count > 1 else math.nan
    return float(np.mean(differences)), _Z_95 * spread / math.sqrt(count)
