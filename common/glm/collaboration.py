"""The collaborator's side of training, without masks and without network (Zhang et al. 2021, Algorithm 3).

    start ──freeze(0)──▶ updating(1) ──freeze(1)──▶ updating(2) ── … ──finish──▶ finished
               │             ▲  │                        ▲
               ▼             │  ▼                        │
            referring(1) ────┘ referring(2) ─────────────┘      with SVRG: until θ̃ of all rows is in

SGD and SAGA freeze a copy and go on: updates beyond the cut may have been applied. SVRG stands still at a
cut, because θ̃ and μ must belong to one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from common.errors import LocalProtocolError, NumericError, RemoteProtocolError
from common.glm.asynchronous import (
    EpochEnd,
    Progress,
    ProgressState,
    ReferencePart,
    ScoreRequest,
    UnseenUpdate,
    Update,
    check_sums,
    check_thetas,
)
from common.glm.block import Block, BlockState
from common.glm.feature_rows import FeatureRows
from common.glm.step_size import StepSchedule
from common.types import Floats, Ints

Phase: TypeAlias = Literal["start", "updating", "referring", "finished"]


@dataclass(frozen=True, slots=True)
class Arriving:
    """θ̃ of the rows that have come so far.

    Attributes:
        thetas: (n,), of which the first `count` are filled.
        count: Rows that have come.
    """

    thetas: Floats = field(repr=False)
    count: int


@dataclass(frozen=True, slots=True)
class CollaborationState:
    """Everything a party needs to go on after a restart.

    Attributes:
        phase: See the module.
        epoch: The one under way, from 1; 0 at the start.
        schedule: Step sizes.
        block: Weights and tables.
        frozen: Weights at the end of the epoch before, None at the start.
        arriving: θ̃ as far as it has come.
        progress: Updates applied.
    """

    phase: Phase
    epoch: int
    schedule: StepSchedule
    block: BlockState
    frozen: Floats | None = field(repr=False)
    arriving: Arriving | None
    progress: ProgressState


class Collaboration:
    """One party's block, and where it stands in training."""

    def __init__(
        self, block: Block, progress: Progress, schedule: StepSchedule, test: FeatureRows | None = None
    ) -> None:
        """Begin at the start; `test` are rows that only measure the model."""
        self.block = block
        self.progress = progress
        self.schedule = schedule
        self.phase: Phase = "start"
        self.epoch = 0
        self._frozen: Floats | None = None
        self._arriving: Arriving | None = None
        self._start: CollaborationState | None = None
        self._test = test

    @property
    def rows(self) -> int:
        """n."""
        return self.block.features.shape[0]

    def answer(self, request: ScoreRequest) -> Floats:
        """Return what a request asks of us, for masking; nothing else may leave.

        Raises:
            RemoteProtocolError: It names blocks that are not (or no longer) frozen.
        """
        if request.asked == "scores":
            if self.phase in ("start", "finished"):
                raise RemoteProtocolError(f"scores for an update were asked for in phase {self.phase!r}")
            self.progress.note_read(request.root, request.number)
            return self.block.scores(request.rows)
        if request.asked == "test_scores":
            return self._test_scores(request.rows)
        frozen = self._frozen_at(request.epoch)
        if request.asked == "frozen_penalty":
            return np.array([self.block.penalty.value(frozen)])
        return self.block.features.scores(request.rows, frozen)

    def give(self, request: ScoreRequest, party: str, to: Callable[[Floats], None]) -> None:
        """Give our answer to whatever masks it.

        Raises:
            NumericError: A score is out of the range of secure sums; names us and the heaviest feature.
        """
        scores = self.answer(request)
        try:
            to(scores)
        except NumericError as exc:
            if request.asked == "frozen_penalty":
                raise
            tested = self._test if request.asked == "test_scores" else None
            feature = self.block.heaviest(tested or self.block.features, request.rows, scores)
            raise NumericError(
                f"the scores of {party} leave the range of secure sums ({exc.what}); most of that comes "
                f"from its feature {feature!r}",
                advice=exc.advice,
            ) from exc

    def may_apply(self, update: Update) -> bool:
        """Return whether an update can be applied now; with SVRG it may have to wait for θ̃."""
        if not self.block.rule.needs_reference:
            return self.phase == "updating"
        return self.phase == "updating" and update.epoch == self.epoch

    def apply(self, update: Update) -> None:
        """Apply one update, once; several threads may call this at the same time.

        Raises:
            RemoteProtocolError: It is of an epoch that cannot be, or further ahead than agreed.
            LocalProtocolError: We should have waited (`may_apply`).
        """
        if self._claimed(update):
            self.block.apply(update.rows, update.thetas, self.schedule.at(update.epoch))
            self.progress.settle(update)

    def apply_sums(self, update: UnseenUpdate, sums: Floats) -> None:
        """Apply an update of which we have Σ θ_i x_i of our columns, (d,), and not θ; once, by any thread.

        Raises:
            RemoteProtocolError, LocalProtocolError: As `apply`.
        """
        check_sums(sums, self.block.features.shape[1])
        if self._claimed(update):
            self.block.apply_sums(update.rows, sums, self.schedule.at(update.epoch))
            self.progress.settle(update)

    def _claimed(self, update: Update) -> bool:
        """Return whether an update is ours to apply; False for one that came again."""
        if not 1 <= update.epoch <= self.epoch + 1:
            raise RemoteProtocolError(f"an update of epoch {update.epoch} came in epoch {self.epoch}")
        if not self.progress.claim(update):
            return False  # a retry, or a resend after a restart
        if not self.may_apply(update):
            self.progress.unclaim(update)
            late = self.block.rule.needs_reference and update.epoch < self.epoch
            text = f"an update of epoch {update.epoch} came in epoch {self.epoch}, phase {self.phase!r}"
            raise RemoteProtocolError(text) if late else LocalProtocolError(text)
        return True

    def freeze(self, end: EpochEnd) -> None:
        """End an epoch: keep a copy of the weights; the same end again changes nothing.

        Raises:
            RemoteProtocolError: It is not the end of the epoch under way, or SVRG did not stand still.
            LocalProtocolError: Updates of the cut are missing: we should have waited (`progress.covers`).
        """
        if self._frozen is not None and end.epoch == self.epoch - 1:
            return
        if self.phase not in ("start", "updating") or end.epoch != self.epoch:
            raise RemoteProtocolError(f"epoch {end.epoch} ended in epoch {self.epoch}, phase {self.phase!r}")
        if not self.progress.covers(end.cut):
            raise LocalProtocolError(f"epoch {end.epoch} cannot end: updates of its cut are missing")
        referring = self.block.rule.needs_reference
        if referring and not self.progress.equals(end.cut):
            raise RemoteProtocolError(f"updates beyond the end of epoch {end.epoch} came before its snapshot")
        self._frozen = self.block.weights.copy()
        self.epoch, self.phase = end.epoch + 1, "referring" if referring else "updating"
        self._arriving = Arriving(np.zeros(self.rows), 0) if referring else None
        if end.epoch == 2:
            self._start = None  # step sizes are tried within the first epoch
        self._note_start()

    def absorb_reference(self, part: ReferencePart) -> None:
        """Take θ̃ of the next rows (SVRG); the same part again changes nothing.

        Raises:
            RemoteProtocolError: It is not of our snapshot, leaves a gap, or goes beyond the rows.
        """
        if part.epoch == self.epoch - 1 and self.block.rule.needs_reference and self.phase == "updating":
            return
        arriving = self._arriving
        if arriving is None or part.epoch != self.epoch - 1:
            raise RemoteProtocolError(f"derivatives at the end of epoch {part.epoch} came in {self.phase!r}")
        end = part.start + len(part.thetas)
        if not 0 <= part.start <= arriving.count or end > self.rows:
            raise RemoteProtocolError(f"derivatives of rows {part.start} … {end} came after {arriving.count}")
        arriving.thetas[part.start : end] = check_thetas(part.thetas, len(part.thetas))
        self._arriving = replace(arriving, count=max(end, arriving.count))
        if self._arriving.count == self.rows:
            self.block.rule.refer_to(self._arriving.thetas)
            self._referred()

    def refer_to_sums(self, epoch: int, sums: Floats) -> None:
        """Take Σ θ̃_j x_j of our columns, (d,), where θ̃ is hidden (SVRG); again changes nothing.

        Raises:
            RemoteProtocolError: It is not of our snapshot, or malformed.
        """
        if epoch == self.epoch - 1 and self.block.rule.needs_reference and self.phase == "updating":
            return
        if self._arriving is None or epoch != self.epoch - 1:
            raise RemoteProtocolError(f"a gradient at the end of epoch {epoch} came in {self.phase!r}")
        self.block.rule.refer_to_sums(check_sums(sums, self.block.features.shape[1]))
        self._referred()

    def _referred(self) -> None:
        self._arriving, self.phase = None, "updating"
        self._note_start()

    def start_over(self, first_step: float) -> None:
        """Go back to the start weights with another step size; the last one called is trained with.

        Raises:
            RemoteProtocolError: Training has gone beyond its first epoch, or has not begun.
        """
        if self._start is None:
            raise RemoteProtocolError(f"step sizes cannot be tried in epoch {self.epoch}, {self.phase!r}")
        self.restore(replace(self._start, schedule=replace(self.schedule, first=first_step)))
        self.progress.staleness.clear()  # what was tried is no part of training

    def finish(self, end: EpochEnd) -> None:
        """End training with the weights as they are.

        Raises:
            RemoteProtocolError: Other updates than those of the cut were applied: the parties differ.
        """
        if self.phase == "finished":
            return
        if self.phase == "start":
            raise RemoteProtocolError("training cannot end: it has not begun")
        if not self.progress.covers(end.cut):
            raise LocalProtocolError("training cannot end: updates of its last cut are missing")
        if not self.progress.equals(end.cut):
            raise RemoteProtocolError("updates beyond the last cut were applied: the parties' models differ")
        self.phase, self._arriving, self._start = "finished", None, None

    def state(self) -> CollaborationState:
        """Return a copy of where we stand, between updates."""
        arriving = self._arriving
        return CollaborationState(
            self.phase,
            self.epoch,
            self.schedule,
            self.block.state(),
            None if self._frozen is None else self._frozen.copy(),
            arriving and replace(arriving, thetas=arriving.thetas.copy()),
            self.progress.state(),
        )

    def restore(self, state: CollaborationState) -> None:
        """Go back to a state."""
        arriving = state.arriving
        self.phase, self.epoch, self.schedule = state.phase, state.epoch, state.schedule
        self.block.restore(state.block)
        self.progress.restore(state.progress)
        self._frozen = None if state.frozen is None else state.frozen.copy()
        self._arriving = arriving and replace(arriving, thetas=arriving.thetas.copy())
        self._note_start()

    def _test_scores(self, rows: Ints) -> Floats:
        """Only of the final blocks: scores of one row under several weights would show the features."""
        if self._test is None or self.phase != "finished":
            raise RemoteProtocolError(f"scores of test rows were asked for in phase {self.phase!r}")
        return self._test.scores(rows, self.block.weights)

    def _note_start(self) -> None:
        """Keep the state to which `start_over` goes back: epoch 1 with nothing applied."""
        if self.phase == "updating" and self.epoch == 1 and not self.progress.rows:
            self._start = self.state()

    def _frozen_at(self, epoch: int) -> Floats:
        if self._frozen is None or epoch != self.epoch - 1:
            raise RemoteProtocolError(f"the blocks at the end of epoch {epoch} are not frozen here")
        return self._frozen
