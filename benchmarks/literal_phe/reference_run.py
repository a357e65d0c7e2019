"""The reference run of the published protocol: its data, its settings, and the losses to reach."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from common.data.split import split_rows
from common.runtime.config_job import JobConfig
from common.runtime.config_local import load_local

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
    X, y = load_diabetes(return_X_y=True)
    train, _ = split_rows(len(y), job.data.test_fraction, job.data.split_seed)
    ones: Any = np.ones(len(y))
    return ReferenceRun(job, np.column_stack([X, ones])[train], y[train])
