"""How far an update goes: a schedule over epochs, and a choice by trial (Zhang et al. 2021, section 7)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from common.errors import JobError, LocalProtocolError

# The paper takes the best of {5e-1, 1e-1, 5e-2, 1e-2, …}.
GRID = (5e-1, 1e-1, 5e-2, 1e-2, 5e-3, 1e-3)


@dataclass(frozen=True, slots=True)
class StepSchedule:
    """η_e = first / (1 + decay·(e − 1)) in epoch e, from 1.

    Attributes:
        first: η of epoch 1, above 0.
        decay: 0 keeps η constant, which SVRG and SAGA converge with; SGD needs it to go all the way.
    """

    first: float
    decay: float = 0.0

    def at(self, epoch: int) -> float:
        """Return η of an epoch."""
        return self.first / (1.0 + self.decay * (epoch - 1))


class StepTrials:
    """Picks the step size whose short run, from the start weights over the same batches, ends lowest."""

    def __init__(self, start_loss: float, grid: tuple[float, ...] = GRID) -> None:
        self._start_loss = start_loss
        self._grid = grid
        self._ends: dict[float, float] = {}

    @property
    def remaining(self) -> tuple[float, ...]:
        """Step sizes not tried yet, the largest first."""
        return tuple(step for step in self._grid if step not in self._ends)

    def record(self, step: float, objective: float) -> None:
        """Note where the run with a step size ended; infinite or NaN when it left every bound."""
        if step not in self.remaining:
            raise LocalProtocolError(f"step size {step:g} is not among those to be tried")
        self._ends[step] = objective if math.isfinite(objective) else math.inf

    def chosen(self) -> float:
        """Return the step size to train with.

        Raises:
            JobError: None of them lowered the objective.
        """
        if self.remaining:
            raise LocalProtocolError("some step sizes have not been tried yet")
        best = min(self._grid, key=lambda step: self._ends[step])
        if not self._ends[best] < self._start_loss:
            raise JobError(
                f"learning_rate: auto found no step size that lowers the objective from {self._grid[-1]:g} "
                f"to {self._grid[0]:g}",
                advice="Standardize the features, or set train.learning_rate by hand.",
            )
        return best

    def describe(self) -> str:
        """Return what was tried and taken, for the report."""
        tried = ", ".join(f"{step:g} → {self._ends[step]:.4g}" for step in self._grid)
        return (
            f"learning_rate: auto took {self.chosen():g} (objective after the trial, from "
            f"{self._start_loss:.4g}: {tried})"
        )
