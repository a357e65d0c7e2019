"""When to stop: the loss has settled, or it rises and will not come back."""

from __future__ import annotations

from common.errors import NumericError

# Gradient descent with a step that is small enough never raises the loss of a convex objective, and the noise
# of batches does not raise the mean of five epochs in a row above where the training began.
_EPOCHS_OF_RISE = 5


class Convergence:
    """Compares the mean loss of an epoch with that of the epoch before.

    One mini-batch's loss says little about the objective, so a job with mini-batches is judged by epochs;
    with all rows in every round an epoch is a round.
    """

    def __init__(self, tolerance: float | None, rounds_per_epoch: int) -> None:
        """`tolerance` is the relative change below which the job stops; None never stops it."""
        self._tolerance = tolerance
        self._rounds_per_epoch = rounds_per_epoch
        self._rounds = 0
        self._known: list[float] = []
        self._first: float | None = None
        self._last: float | None = None
        self._rises = 0

    def settled(self, loss: float | None) -> bool:
        """Take the loss of the next round, None where there is none; tell whether to stop.

        Raises:
            NumericError: The loss has risen for several epochs, above where it began.
        """
        self._rounds += 1
        if loss is not None:
            self._known.append(loss)
        if self._rounds % self._rounds_per_epoch or not self._known:
            return False
        mean = sum(self._known) / len(self._known)
        self._known.clear()
        before, self._last = self._last, mean
        if self._first is None or before is None:
            self._first = mean
            return False
        self._rises = self._rises + 1 if mean > before else 0
        if self._rises >= _EPOCHS_OF_RISE and mean > self._first:
            raise NumericError(
                f"the training diverges: the loss rose {self._rises} times in a row, from {self._first:.6g} "
                f"at the start to {mean:.6g} in round {self._rounds}",
                advice="Lower train.learning_rate, or set it to auto.",
            )
        return self._tolerance is not None and abs(before - mean) <= self._tolerance * max(
            abs(before), abs(mean)
        )
