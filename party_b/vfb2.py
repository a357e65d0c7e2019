"""An active party's role in VFB² (Zhang et al. 2021, Algorithms 1, 2 and 3).

Algorithm 2   step 2   pick rows i
              step 3   z_i = Σ_l w_l·x_l,i, by Algorithm 1 with us as the root
              step 4   θ_i = ∂loss(z_i, y_i)/∂z_i
              step 5   send θ and i to all others
              step 6   apply it to our own block
Algorithm 3   the collaborator's part, for the updates of other active parties (see party_a/vfb2.py)

At the end of an epoch one active party measures the objective at the frozen blocks, with one sum over all
rows and one over the parties' penalties. With SVRG the same sum gives θ̃.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from common.crypto.aggregation_trees import TreeName
from common.crypto.secure_sum import OpenShares, SumShare, Words
from common.errors import LocalProtocolError, NumericError
from common.glm.asynchronous import ReferencePart, ScoreRequest, Update
from common.glm.collaboration import Collaboration, CollaborationState
from common.glm.outbox import Outbox, OutboxState
from common.glm.row_order import BatchOrder
from common.glm.score_losses import ScoreLoss
from common.types import Floats


@dataclass(frozen=True, slots=True)
class Dominance:
    """What an active party has beyond its columns.

    Attributes:
        party: Our name, the root of our sums.
        labels: (n,).
        loss: Known to active parties only.
        order: Which rows come next.
        outbox: Our updates on their way.
        first_request: Above every number that we ever used in this job, before a restart, too.
        kind: Whether others see θ.
    """

    party: str
    labels: Floats = field(repr=False)
    loss: ScoreLoss
    order: BatchOrder
    outbox: Outbox
    first_request: int = 1
    kind: type[Update] = Update


@dataclass(frozen=True, slots=True)
class DominatorState:
    """What a restart needs.

    Attributes:
        collaboration: Our block and where it stands.
        outbox: Updates that not every party has written down.
        picked: Number of the last batch picked.
        again: Numbers of earlier batches that led to no update.
    """

    collaboration: CollaborationState
    outbox: OutboxState
    picked: int
    again: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Begun:
    """An update that we have begun: its request, its batch, and what we had applied by then."""

    request: ScoreRequest
    batch: int
    applied: int


@dataclass(slots=True)
class _Measure:
    """The sums at the end of an epoch, as far as they are in."""

    epoch: int
    waiting: dict[int, ScoreRequest]
    scores: Floats
    penalty: float = 0.0


class Dominator:
    """Our columns, labels and block; the updates we begin, and our part in those of others."""

    def __init__(self, collaboration: Collaboration, shares: OpenShares, dominance: Dominance) -> None:
        self.collaboration = collaboration
        self.outbox = dominance.outbox
        self._shares = shares
        self._own = dominance
        self._next_request = dominance.first_request
        self._picked = 0
        self._again: list[int] = []  # batches to pick before new ones
        self._open: dict[int, _Begun] = {}
        self._halted = False
        self._measure: _Measure | None = None

    @property
    def weights(self) -> Floats:
        """Our block as it is now, (d,); other threads may be moving it."""
        return self.collaboration.block.weights

    @property
    def next_request(self) -> int:
        """The number that our next request will have."""
        return self._next_request

    def may_pick(self) -> bool:
        """Return whether another update may be begun: training goes on and nobody is too far behind."""
        updating = self.collaboration.phase == "updating" and not self._halted
        return updating and self.outbox.room(len(self._open))

    def pick(self) -> ScoreRequest:
        """Algorithm 2, step 2: choose the next rows, and ask for their scores.

        Raises:
            LocalProtocolError: We should have waited (`may_pick`).
        """
        if not self.may_pick():
            raise LocalProtocolError(
                f"no update may be begun: {len(self._open)} requests are open, "
                f"{self.outbox.in_flight} updates in flight"
            )
        if self._again:
            batch = self._again.pop(0)
        else:
            batch = self._picked = self._picked + 1
        rows = self._own.order.batch(batch)
        epoch = self.collaboration.epoch
        request = ScoreRequest(self._own.party, self._number(), "scores", epoch, rows)
        self._open[request.number] = _Begun(request, batch, self.collaboration.progress.applied)
        return request

    def fresh(self, request: ScoreRequest) -> bool:
        """Return whether the scores of an open request are still worth a θ.

        The bound on updates in flight holds each dominator back, but not the others while this one pauses.
        Scores that were overtaken by more than all of them may have in flight are better asked for again.
        """
        progress = self.collaboration.progress
        overtaken = progress.applied - self._begun(request).applied
        return overtaken <= self.outbox.max_staleness * len(progress.counts)

    def contribute(self, request: ScoreRequest) -> SumShare:
        """Algorithm 1, steps 2 and 3, for our own requests and for those of others."""
        share = self._shares.requested(request.root, request.number, request.length)
        if not share.contributed:
            self.collaboration.give(request, share.party, share.contribute)
        return share

    def absorb(self, root: str, number: int, tree: TreeName, child: str, words: Words) -> SumShare:
        """Algorithm 1, steps 4 and 5: add a child's partial sum, which may come before the request does."""
        share = self._shares.awaited(root, number, len(words))
        share.absorb(tree, child, words)
        return share

    def dominate(self, request: ScoreRequest) -> Update:
        """Algorithm 2, steps 3 and 4: open the sum, compute θ, and keep the update for sending.

        The caller writes it down, sends it to all others, and gives it to `apply`, in this order.

        Raises:
            LocalProtocolError: The request is not open, or parts of its sum are missing.
            NumericError: A derivative is not finite.
        """
        self._begun(request)
        thetas = self._thetas(self._opened(request), self._own.labels[request.rows])
        number = self.outbox.sent + 1
        update = self._own.kind(self._own.party, number, request.epoch, request.number, request.rows, thetas)
        self.outbox.put(update)
        del self._open[request.number]
        return update

    def abandon(self, request: ScoreRequest) -> None:
        """Give up a request whose sum does not come; its rows are picked again."""
        self._again.append(self._begun(request).batch)
        del self._open[request.number]

    def apply(self, update: Update) -> None:
        """Algorithm 2, step 6, and Algorithm 3: move our block; several threads may call this."""
        self.collaboration.apply(update)

    def halt(self) -> int:
        """Begin no more updates, give up open requests, and return the number of our last update."""
        self._halted = True
        for begun in list(self._open.values()):
            self.abandon(begun.request)
        return self.outbox.sent

    def resume(self) -> None:
        """Begin updates again, after an epoch has been judged."""
        self._halted = False

    def start_over(self, first_step: float) -> None:
        """Go back to the start weights with another step size and the same batches.

        While step sizes are tried one active party dominates alone, and calls this when all others have
        answered that they started over: nothing of the trial before is on its way any more.
        """
        self.halt()
        self.collaboration.start_over(first_step)
        self.outbox.clear()
        self._picked, self._again, self._halted = 0, [], False

    def begin_session(self, shares: OpenShares, first_request: int) -> None:
        """Take part in the sums of a new session, with request numbers that no earlier one had.

        What was open is given up; updates may be begun after `resume`.
        """
        self.halt()
        self._measure = None
        self._shares, self._next_request = shares, first_request

    def ask_measure(self, rows_per_request: int) -> list[ScoreRequest]:
        """Ask for the joint scores of all rows at the frozen blocks, and for the sum of their penalties."""
        epoch, total = self.collaboration.epoch - 1, self.collaboration.rows
        positions = np.arange(total, dtype=np.int64)
        pieces = [positions[begin : begin + rows_per_request] for begin in range(0, total, rows_per_request)]
        asked = [
            ScoreRequest(self._own.party, self._number(), "frozen_scores", epoch, rows) for rows in pieces
        ]
        asked.append(ScoreRequest(self._own.party, self._number(), "frozen_penalty", epoch, positions[:0]))
        self._measure = _Measure(epoch, {request.number: request for request in asked}, np.zeros(total))
        return asked

    def take_measure(self, number: int) -> None:
        """Open one of those sums; again changes nothing."""
        measure = self._measuring()
        request = measure.waiting.get(number)
        if request is None:
            return
        total = self._opened(request)
        if request.asked == "frozen_penalty":
            measure.penalty = float(total[0])
        else:
            measure.scores[request.rows] = total
        del measure.waiting[number]

    def objective(self) -> float:
        """Return the objective at the frozen blocks, in mean form, penalties included.

        Raises:
            LocalProtocolError: Sums are missing.
        """
        measure = self._complete()
        return self._own.loss.mean(measure.scores, self._own.labels) + measure.penalty

    def joint_scores(self) -> Floats:
        """Return the joint scores of all training rows at the frozen blocks, (n,): for us alone."""
        return self._complete().scores

    def ask_test_scores(self, rows: int, rows_per_request: int) -> list[ScoreRequest]:
        """Ask for the joint scores of test rows at the final blocks; `opened` returns them."""
        positions = np.arange(rows, dtype=np.int64)
        epoch = self.collaboration.epoch - 1
        return [
            ScoreRequest(
                self._own.party,
                self._number(),
                "test_scores",
                epoch,
                positions[begin : begin + rows_per_request],
            )
            for begin in range(0, rows, rows_per_request)
        ]

    def opened(self, request: ScoreRequest) -> Floats:
        """Return the sum of one of our requests, (b,); parts of it must not be missing."""
        return self._opened(request)

    def reference(self, rows_per_part: int) -> list[ReferencePart]:
        """Return SVRG's θ̃ of all rows for everybody, ourselves included, in parts."""
        measure = self._complete()
        thetas = self._thetas(measure.scores, self._own.labels)
        return [
            ReferencePart(measure.epoch, begin, thetas[begin : begin + rows_per_part])
            for begin in range(0, len(thetas), rows_per_part)
        ]

    def state(self) -> DominatorState:
        """Return what a restart needs: batches of open requests will be picked again."""
        again = sorted([*self._again, *(begun.batch for begun in self._open.values())])
        return DominatorState(self.collaboration.state(), self.outbox.state(), self._picked, tuple(again))

    def restore(self, state: DominatorState) -> None:
        """Go back to a state; a measure begins anew, and request numbers do not go back."""
        self.collaboration.restore(state.collaboration)
        self.outbox.restore(state.outbox)
        self._picked, self._again = state.picked, list(state.again)
        self._open.clear()
        self._halted, self._measure = False, None

    def readopt(self, update: Update) -> None:
        """Take over an update of ours that was written down and perhaps sent, after the restored state.

        Some party may have applied it: beginning another one under its number would part the models.
        """
        if self._again:
            self._again.pop(0)
        else:
            self._picked += 1
        self.outbox.put(update)
        self.collaboration.apply(update)

    def _begun(self, request: ScoreRequest) -> _Begun:
        if request.number not in self._open:
            raise LocalProtocolError(f"request {request.number} is not open")
        return self._open[request.number]

    def _number(self) -> int:
        number, self._next_request = self._next_request, self._next_request + 1
        return number

    def _opened(self, request: ScoreRequest) -> Floats:
        return self._shares.requested(request.root, request.number, request.length).opened()

    def _thetas(self, scores: Floats, labels: Floats) -> Floats:
        thetas = self._own.loss.thetas(scores, labels)
        if not np.isfinite(thetas).all():
            raise NumericError(
                "a derivative of the loss is not finite",
                advice="lower train.learning_rate, or check the label",
            )
        return thetas

    def _measuring(self) -> _Measure:
        if self._measure is None:
            raise LocalProtocolError("no measure of the objective was begun")
        return self._measure

    def _complete(self) -> _Measure:
        measure = self._measuring()
        if measure.waiting:
            raise LocalProtocolError(f"{len(measure.waiting)} sums of the objective are missing")
        return measure
