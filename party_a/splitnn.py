"""Party A's role in a split network (SplitNN; PROTOCOLS 3): the bottom network f_A, batch after batch.

forward   h_A = f_A(x_A) of the batch, clipped and blurred if the job says so  → B
backward  f_A moves down ∂L/∂h_A, which B sends

With pipelining the forward pass of a batch runs before the backward pass of the one before it, so that a
batch's h_A is at most one step old. A never sees a label, nor anything of B's but these gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from common.errors import LocalProtocolError, RemoteProtocolError
from common.nets.protect import Singles
from common.types import Ints


class Bottom(Protocol):
    """A network over A's rows (common/nets/split.py); rows are positions."""

    def forward(self, rows: Ints) -> Singles:
        """Return the representations of a training batch, (b, width)."""

    def backward(self, rows: Ints, gradient: Singles) -> None:
        """Go one step along ∂L/∂h of the oldest forward pass."""

    def represent(self, rows: Ints) -> Singles:
        """Return representations without dropout, (r, width)."""

    def to_bytes(self) -> bytes:
        """Return everything that goes on bit for bit from here."""

    def weights_to_bytes(self) -> bytes:
        """Return the network as a model."""


class PassiveSplit:
    """A's network on the rows of one run, and where in an epoch it stands."""

    def __init__(self, network: Bottom, rows: Ints, ahead: int, epoch: int = 0) -> None:
        """Stand at the end of an epoch.

        Args:
            network: As it is there.
            rows: Positions of the training rows among the network's rows; a batch is positions among these.
            ahead: Batches that run forward before the gradient of the one before them is there: 0 or 1.
            epoch: 0 for a new network.
        """
        self.network = network
        self.epoch = epoch
        self._rows = rows
        self._ahead = ahead
        self._batches: Sequence[Ints] = ()
        self._count = 0
        self._forward = 0
        self._backward = 0

    def begin(self, epoch: int, batches: Sequence[Ints]) -> None:
        """Begin an epoch.

        Raises:
            RemoteProtocolError: It is not the one after the last that was finished, or one is under way.
        """
        if epoch != self.epoch + 1:
            raise RemoteProtocolError(f"epoch {epoch} cannot begin: the last one finished is {self.epoch}")
        if self._batches:
            raise RemoteProtocolError(f"epoch {epoch} has begun already")
        self._batches = [self._rows[batch] for batch in batches]
        self._count = len(self._batches)
        self._forward = self._backward = 0

    @property
    def batches(self) -> int:
        """Batches in the epoch that began last."""
        return self._count

    @property
    def is_between_epochs(self) -> bool:
        """Whether no epoch is under way."""
        return not self._batches

    @property
    def may_run_forward(self) -> bool:
        """Whether the next batch's representation may be sent now."""
        return self._forward < len(self._batches) and self._forward <= self._backward + self._ahead

    @property
    def is_done(self) -> bool:
        """Whether every batch of the epoch has run backward."""
        return self._backward == len(self._batches)

    @property
    def next_rows(self) -> int:
        """Rows of the batch whose gradient is awaited."""
        return len(self._batches[self._backward])

    def forward(self) -> tuple[int, Singles]:
        """Return the number of the next batch and its representation, (b, width)."""
        if not self.may_run_forward:
            raise LocalProtocolError("no batch may run forward now")
        at = self._forward
        self._forward += 1
        return at, self.network.forward(self._batches[at])

    def backward(self, batch: int, gradient: Singles) -> None:
        """Take one step.

        Args:
            batch: Which one the gradient belongs to.
            gradient: ∂L/∂h_A, (b, width).

        Raises:
            RemoteProtocolError: It is not the next batch, or no gradient of it.
        """
        if self.is_done or batch != self._backward or batch >= self._forward:
            raise RemoteProtocolError(f"the gradient of batch {batch} came out of turn")
        rows = self._batches[batch]
        if len(gradient) != len(rows) or not np.isfinite(gradient).all():
            raise RemoteProtocolError(f"the gradient of batch {batch} is not one finite vector a row")
        self.network.backward(rows, gradient)
        self._backward += 1

    def finish(self) -> None:
        """End the epoch."""
        if not self.is_done:
            raise LocalProtocolError("an epoch ended before its last batch")
        self._batches = ()
        self.epoch += 1

    def represent(self, rows: Ints) -> Singles:
        """Return the representation of rows with the weights as they are, without dropout, (n, width)."""
        return self.network.represent(rows)
