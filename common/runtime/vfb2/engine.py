"""What the keeper says to a party in VFB², and what the party does then: epochs end, training ends.

An answer to the keeper is given when what it speaks of is on the disk. The keeper may say everything again,
in another session: what was done is then answered again, and not done twice (ADR 0014).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from common.errors import RemoteProtocolError
from common.glm.asynchronous import EpochEnd
from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.vfb2.records import end_record, start_over_record
from common.runtime.vfb2.update_loop import UpdateLoop
from common.runtime.vfb2.wire import end_from, reference_from, step_from

log = logging.getLogger("vfl.vfb2")


class Engine(UpdateLoop):
    """One party's part in one job, whoever it is."""

    # The session in which a stream of ours broke last, and to whom.
    _broke_off_at: tuple[int, str] = (-1, "")

    @property
    def keeper(self) -> str:
        """The conducting party."""
        return self.place.job.active

    def interrupted(self, peer: str) -> None:
        """Tell the keeper that our stream to another party broke: it will begin another session."""
        log.info("job %s: the stream to %s broke", self.place.turn.job_id, peer)
        self._broke_off_at = (self.session, peer)
        self.say(pb.CollaboratorWord(interrupted=pb.Interrupted(peer=peer)))

    def _on_attended(self, root: str) -> None:
        """Tell the keeper of a stream that broke before the keeper's own was there."""
        session, peer = self._broke_off_at
        if root == self.keeper and session == self.session:
            self.say(pb.CollaboratorWord(interrupted=pb.Interrupted(peer=peer)))

    def derail(self) -> None:
        """Give up the step size on trial; to be called while the error is handled that says why.

        Raises:
            NumericError: The one that is handled, if no step size is on trial.
        """
        if not self._trial:
            raise
        if not self._derailed:
            self._derailed = True
            self._held.clear()
            self._held_requests.clear()
            self.say(pb.CollaboratorWord(derailed=pb.Derailed(trial=self._trial)))

    def _on_keeper(self, kind: str, word: pb.DominatorWord) -> None:
        if kind == "epoch_end":
            self._on_end(end_from(word.epoch_end, self.place.limits))
        elif kind == "reference":
            self._on_reference(word.reference)
        elif kind == "finish":
            self._finish = end_from(word.finish, self.place.limits)
        elif kind == "start_over":
            self._on_start_over(word.start_over)
        elif kind == "halt":
            self._on_halt()
        elif kind == "go":
            self._on_go(word.go.epoch)
        # A verdict is for people: nothing here depends on it.

    def _on_halt(self) -> None:
        raise RemoteProtocolError(f"{self.place.party} does not dominate, and cannot halt")

    def _on_go(self, epoch: int) -> None:
        raise RemoteProtocolError(f"{self.place.party} does not dominate, and cannot go on")

    def _on_end(self, end: EpochEnd) -> None:
        if end.epoch > self.collaboration.epoch:
            raise RemoteProtocolError(f"epoch {end.epoch} ended in epoch {self.collaboration.epoch}")
        if end.epoch == self.collaboration.epoch - 1:
            # We have frozen already; with what was written then our answer is durable as well.
            self._when_written(lambda: self.say(pb.CollaboratorWord(frozen=pb.Frozen(epoch=end.epoch))))
        else:
            self._end = end

    def end_epoch(self, end: EpochEnd) -> None:
        """Freeze our block when it has seen the updates of a cut, keep it, and tell the keeper."""
        self._end = end
        self._after()

    def _try_end(self) -> None:
        end = self._end
        if end is None or not self.collaboration.progress.covers(end.cut) or not self._applier.idle:
            return
        self._end = None
        self.collaboration.freeze(end)
        self._journal.append(end_record(end))
        # A checkpoint made while step sizes are tried would not know the start to go back to.
        keep = self._when_written if self._trial else self._keep
        keep(lambda: self.say(pb.CollaboratorWord(frozen=pb.Frozen(epoch=end.epoch))))

    def _on_reference(self, message: pb.ReferencePart) -> None:
        part = reference_from(message)
        waited = self.collaboration.phase == "referring"
        self.collaboration.absorb_reference(part)
        if waited and self.collaboration.phase == "updating":
            self._keep(lambda: self.say(pb.CollaboratorWord(referred=pb.Referred(epoch=part.epoch))))

    def _try_finish(self) -> None:
        end = self._finish
        if end is None or not self.collaboration.progress.covers(end.cut) or not self._applier.idle:
            return
        self._finish = None
        self.collaboration.finish(end)
        self.before_finished(end.epoch)
        self._keep(lambda: self.say(pb.CollaboratorWord(finished=self.finished())))

    def finished(self) -> pb.Finished:
        """Return what we applied, and how stale its scores were."""
        progress = self.collaboration.progress
        return pb.Finished(digest=progress.digest, staleness=dict(progress.staleness))

    def _on_start_over(self, message: pb.StartOver) -> None:
        step, trial = step_from(message.step), message.trial
        self.start_over(step, trial)
        self._keep(lambda: self.say(pb.CollaboratorWord(started_over=pb.StartedOver(trial=trial))))

    def start_over(self, step: float, trial: int) -> None:
        """Go back to the start weights with another step size."""
        self._trial, self._derailed, self._end = trial, False, None
        self._held.clear()
        self._held_requests.clear()
        self._dirty.clear()  # nobody is to be told of what is undone
        self.restart_role(step)
        self._journal.append(start_over_record(step))
        counts = self.collaboration.progress.counts
        self._heard, self._answered = dict(counts), dict.fromkeys(counts, 0)
        self._durable = dict(counts)
        self._written.clear()

    def restart_role(self, step: float) -> None:
        """Let the role go back to its start."""
        self.collaboration.start_over(step)

    def say(self, word: pb.CollaboratorWord) -> None:
        """Tell the keeper; a keeper that is away asks again in the next session."""
        stream = self._streams.get(self.keeper)
        if stream is not None:
            stream.put(word)

    def _keep(self, then: Callable[[], None]) -> None:
        self._journal.checkpoint(self._snapshot(), then)

    def _when_written(self, then: Callable[[], None]) -> None:
        self._journal.barrier(then)
