"""Party B's role in a split network (SplitNN; PROTOCOLS 3): its bottom f_B, the top g, labels and loss.

prepare  f_B(x_B) of the next batch
step     ŷ = g([f_B(x_B), h_A, …]) of the batch; ∂L/∂h_A, protected as asked, → A
settle   f_B and g move down ∂L, while ∂L/∂h_A is on its way
validate ŷ of the validation rows, which say when to stop

Labels stay here. What A gets of them is in the gradients (common/nets/protect.py says what may hide it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from common.errors import LocalProtocolError
from common.nets.protect import Singles
from common.types import Floats, Ints


class Gradients(Protocol):
    """What one batch gave."""

    @property
    def loss(self) -> float:
        """Mean cross-entropy before the step."""

    @property
    def gradients(self) -> Mapping[str, Singles]:
        """By party, (b, width): ∂loss/∂h, protected."""


class Top(Protocol):
    """A network over B's rows (common/nets/split.py); rows are positions."""

    def prepare(self, rows: Ints) -> None:
        """Run f_B forward for the next batch."""

    def step(self, rows: Ints, representations: Mapping[str, Singles]) -> Gradients:
        """Train on a batch, up to what the others need of it."""

    def settle(self) -> None:
        """Do the rest of the last step."""

    def logits(self, rows: Ints, representations: Mapping[str, Singles]) -> Floats:
        """Return scores without dropout, (r,)."""

    def to_bytes(self) -> bytes:
        """Return everything that goes on bit for bit from here."""

    def weights_to_bytes(self) -> bytes:
        """Return the network as a model."""


class ActiveSplit:
    """B's half on the rows of one run, and where in an epoch it stands."""

    def __init__(self, network: Top, rows: Ints, epoch: int = 0) -> None:
        """Stand at the end of an epoch.

        Args:
            network: As it is there.
            rows: Positions of the training rows among the network's rows; a batch is positions among these.
            epoch: 0 for a new network.
        """
        self.network = network
        self.epoch = epoch
        self._rows = rows
        self._batches: Sequence[Ints] = ()
        self._loss = 0.0
        self._done = 0

    def begin(self, batches: Sequence[Ints]) -> None:
        """Begin the next epoch."""
        self._batches, self._loss, self._done = batches, 0.0, 0

    @property
    def batches(self) -> int:
        """Batches in the epoch."""
        return len(self._batches)

    @property
    def is_done(self) -> bool:
        """Whether every batch of the epoch has had its step."""
        return self._done == len(self._batches)

    def rows_of(self, batch: int) -> int:
        """Return the size of a batch."""
        return len(self._batches[batch])

    @property
    def next_rows(self) -> Ints:
        """The next batch's positions among the network's rows."""
        return self._rows[self._batches[self._done]]

    def step(self, representations: Mapping[str, Singles]) -> Mapping[str, Singles]:
        """Take the next batch's step.

        Args:
            representations: h by party, (b, width).

        Returns:
            What each party gets of ∂L/∂h, (b, width).

        Raises:
            NumericError: The loss is not finite.
        """
        if self.is_done:
            raise LocalProtocolError("an epoch has no further batch")
        batch = self._batches[self._done]
        found = self.network.step(self._rows[batch], representations)
        self._done += 1
        self._loss += found.loss * len(batch)
        return found.gradients

    def settle(self) -> None:
        """End the batch's step, and begin the next one as far as that needs nobody."""
        self.network.settle()
        if not self.is_done:
            self.network.prepare(self.next_rows)

    def finish(self) -> float:
        """End the epoch; return the mean loss of its rows, each before its own step."""
        if not self.is_done:
            raise LocalProtocolError("an epoch ended before its last batch")
        self.epoch += 1
        return self._loss / max(1, len(self._rows))

    def scores(self, rows: Ints, representations: Mapping[str, Singles]) -> Floats:
        """Return ŷ as logits of any rows, (r,)."""
        return np.asarray(self.network.logits(rows, representations))
