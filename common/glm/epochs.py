"""When an epoch ends and when training does: decided by one active party, from what everybody sees anyway.

Every party receives every update, so the first active party needs no reports to count rows. When enough of
them have been applied it names a cut, and every party freezes its block there. The objective at the frozen
blocks, from one masked sum over all rows, decides whether to go on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from common.errors import LocalProtocolError, NumericError


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from the objective at the end of an epoch.

    Attributes:
        epoch: From 0, the start.
        objective: In mean form, penalties included.
        last: Whether training ends.
        converged: Whether it ends because the objective has settled.
        because: In plain words; empty when training goes on.
    """

    epoch: int
    objective: float
    last: bool
    converged: bool
    because: str


class EpochKeeper:
    """Counts rows, keeps the objectives, and gives the verdict."""

    def __init__(self, rows: int, max_epochs: int, tolerance: float | None) -> None:
        """Plan epochs of `rows` rows each.

        Args:
            rows: Rows of an epoch: n, or 2n for SVRG with the longer inner loop.
            max_epochs: At least 1.
            tolerance: Training ends when an epoch changes the objective by less, relative to it.
        """
        self._rows = rows
        self._max_epochs = max_epochs
        self._tolerance = tolerance
        self.objectives: list[float] = []

    def due(self, epoch: int, rows_applied: int) -> bool:
        """Return whether an epoch (from 1) has seen its rows, all dominators taken together."""
        return rows_applied >= epoch * self._rows

    def judge(self, epoch: int, objective: float) -> Verdict:
        """Take the objective at the end of an epoch, in order from 0.

        Raises:
            NumericError: It is not finite.
        """
        if epoch != len(self.objectives):
            raise LocalProtocolError(f"epoch {epoch} cannot be judged: {len(self.objectives)} is the next")
        if not math.isfinite(objective):
            raise NumericError(
                f"the objective after epoch {epoch} is not finite",
                advice="lower train.learning_rate, or standardize the features",
            )
        self.objectives.append(objective)
        if self._settled():
            because = f"the objective changed by less than {self._tolerance:g} of itself in epoch {epoch}"
            return Verdict(epoch, objective, True, True, because)
        if epoch >= self._max_epochs:
            return Verdict(epoch, objective, True, False, f"{epoch} epochs were run")
        return Verdict(epoch, objective, False, False, "")

    def _settled(self) -> bool:
        if self._tolerance is None or len(self.objectives) < 2:
            return False
        before, now = self.objectives[-2:]
        return abs(before - now) < self._tolerance * max(abs(now), 1e-300)
