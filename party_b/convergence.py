"""When to stop: the loss has settled."""

from __future__ import annotations

from collections.abc import Sequence


class Settled:
    """Compares the mean loss of an epoch with that of the epoch before.

    One mini-batch's loss says little about the objective, so a job with mini-batches is judged by epochs;
    with all rows in every round an epoch is a round.
    """

    def __init__(self, tolerance: float | None, rounds_per_epoch: int) -> None:
        """`tolerance` is the relative change below which the job stops; None never stops it."""
        self._tolerance = tolerance
        self._rounds_per_epoch = rounds_per_epoch

    def after(self, losses: Sequence[float | None]) -> bool:
        """Tell whether to stop, given the losses so far, one a round, None where there is none."""
        epochs, rest = divmod(len(losses), self._rounds_per_epoch)
        if self._tolerance is None or rest:
            return False
        means = [mean for epoch in range(epochs) if (mean := self._mean(losses, epoch)) is not None]
        if len(means) < 2 or self._mean(losses, epochs - 1) is None:
            return False
        before, now = means[-2:]
        return abs(before - now) <= self._tolerance * max(abs(before), abs(now))

    def _mean(self, losses: Sequence[float | None], epoch: int) -> float | None:
        start = epoch * self._rounds_per_epoch
        known = [loss for loss in losses[start : start + self._rounds_per_epoch] if loss is not None]
        return sum(known) / len(known) if known else None
