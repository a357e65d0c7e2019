"""The reference run of the published protocol: its data, its settings, and the losses to reach."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from common.data.split import split_rows
from common.runtime.config.job import JobConfig
from common.runtime.config.local import load_local

CONFIG = Path(__file__).parents[2] / "configs" / "local_reference.yaml"
# A holds the first six columns, B the other four and the column of ones.
COLUMNS_OF_A = 6

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """Training rows and settings of the run; λ is that of the sum form, n times the job's l2."""

    job: JobConfig
    features: Floats = field(repr=False)
    labels: Floats = field(repr=False)

    def without(self, ids: set[str]) -> ReferenceRun:
        """Return the run trained on all rows but these."""
        design, labels = _all_rows()
        kept = [row for row, name in enumerate(_all_ids()) if name not in ids]
        return ReferenceRun(self.job, design[kept], labels[kept])

    @property
    def rows(self) -> int:
        """Training rows."""
        return len(self.labels)

    @property
    def penalty(self) -> float:
        """λ of ½ Σd² + (λ/2)‖w‖²."""
        return self.job.model.l2 * self.rows

    def pooled_losses(self, rounds: int) -> Floats:
        """Return the sum-form loss before each of the first rounds' updates, on pooled data."""
        w, losses = np.zeros(self.features.shape[1]), []
        for _ in range(rounds):
            d = self.features @ w - self.labels
            losses.append(0.5 * d @ d + 0.5 * self.penalty * w @ w)
            w = w - self.learning_rate * (self.features.T @ d + self.penalty * w) / self.rows
        return np.array(losses)

    @property
    def learning_rate(self) -> float:
        """η, a number in this job."""
        return float(self.job.train.learning_rate)


def reference_run() -> ReferenceRun:
    """Return the run of configs/local_reference.yaml, on scikit-learn's own copy of the data."""
    job = load_local(CONFIG).job
    design, labels = _all_rows()
    train, _ = split_rows(len(labels), job.data.test_fraction, job.data.split_seed)
    return ReferenceRun(job, design[train], labels[train])


def _all_rows() -> tuple[Floats, Floats]:
    X, y = load_diabetes(return_X_y=True)
    ones: Any = np.ones(len(y))
    return np.column_stack([X, ones]), y


def _all_ids() -> list[str]:
    """Return the ids of scikit-learn's rows, in its order, as our files have them."""
    with (CONFIG.parent / "data" / "diabetes_a.csv").open(encoding="utf-8", newline="") as file:
        return [row["id"] for row in csv.DictReader(file)]
