"""The loop of an active party in VFB² (ADR 0014): begins updates of its own beside what every party does.

    may_pick → pick → contribute → ask everybody → the sum is complete → fresh? → dominate
             → write down → safe (`train.journal`) → send to everybody → apply

Nobody else can know an update before our journal does: a restarted dominator must never put another θ under
a number that some party has applied.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from common.errors import JobError, NumericError, RemoteProtocolError
from common.glm.asynchronous import EpochEnd, ScoreRequest, UnseenUpdate, Update
from common.glm.outbox import OutboxState
from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.vfb2.engine import Engine
from common.runtime.vfb2.journal import Journal
from common.runtime.vfb2.outbound import Outbound
from common.runtime.vfb2.place import Place
from common.runtime.vfb2.records import (
    Kept,
    SumsRecord,
    kept_from_bytes,
    kept_to_bytes,
    record_from,
    update_record,
)
from common.runtime.vfb2.sums import window_of
from common.runtime.vfb2.wire import request_word, sum_from, update_message
from party_b.vfb2 import Dominator, DominatorState

# Each is 64 kilobytes at every party, and a few milliseconds of work; two times as many may be under way.
_SUMS_AT_ONCE = 4

Links = Mapping[str, Outbound[pb.DominatorWord]]


class DominatorEngine(Engine):
    """One active party's part in one job."""

    role: Dominator

    def __init__(self, place: Place, role: Dominator, journal: Journal) -> None:
        """Take a role that stands where the journal says; nothing is begun before `go`."""
        self._links: Links = {}
        self._standing: set[str] = set()  # who has said in this session where it stands
        self._asked: dict[int, ScoreRequest] = {}
        self._sums: dict[int, asyncio.Future[None]] = {}  # of many rows, by request
        self._unsent: deque[tuple[int, Update]] = deque()
        self._going = False
        self._halting = False
        self._last_step = 0  # mode sync: where the epoch ends
        self._most_in_flight = role.outbox.max_staleness
        self._most_rows = 0  # of all dominators: how far we may run ahead of the keeper
        super().__init__(place, role, journal, lambda: snapshot(role))

    def connect(self, links: Links) -> None:
        """Take this session's streams to all other parties; `begin` came before."""
        self._links = links
        self._standing.clear()
        self._asked.clear()
        for waiting in self._sums.values():
            waiting.cancel()
        self._sums.clear()
        self._going = self._halting = False
        self._answered[self.place.party] = self.role.outbox.sent

    def hear_back(self, peer: str, frame: pb.ToDominator) -> None:
        """Handle what another party says on our stream to it; its mistakes end our part."""
        try:
            for word in frame.words:
                self._hear_back(peer, word)
            self._after()
        except NumericError as exc:
            self._lost(exc)
        except Exception as exc:
            self.fail(exc)

    def _hear_back(self, peer: str, word: pb.CollaboratorWord) -> None:
        kind = word.WhichOneof("word")
        if kind == "sum":
            self._on_sum(peer, word.sum)
        elif kind == "applied":
            self._on_applied_at(peer, word.applied)
        else:
            self.on_answer(peer, kind, word)

    def word_of(self, update: Update) -> pb.DominatorWord:
        """Return an update as the others get it."""
        return pb.DominatorWord(update=update_message(update))

    def on_answer(self, peer: str, kind: str | None, word: pb.CollaboratorWord) -> None:
        """Handle an answer to the keeper, which we are not."""
        raise RemoteProtocolError(f"{peer} said {kind!r} to a party that does not keep the epochs")

    def _on_applied_at(self, peer: str, message: pb.Applied) -> None:
        if peer not in self._standing and message.applied > self.role.outbox.sent:
            raise JobError(
                f"{peer} has applied {message.applied:,} updates of {self.place.party}, whose journal ends "
                f"at {self.role.outbox.sent:,}: the machine of {self.place.party} must have lost power",
                advice="Run the job again; with `train.journal: flushed` it survives a power cut as well.",
            )
        self.role.outbox.acknowledge(peer, message.applied, message.durable)
        if peer not in self._standing:
            self._standing.add(peer)
            unsent = {update.number for _, update in self._unsent}
            for update in self.role.outbox.after(message.applied):
                if update.number not in unsent:
                    self._links[peer].put(self.word_of(update))

    def _on_sum(self, peer: str, message: pb.PartialSum) -> None:
        request = self._asked.get(message.number)
        if request is None:
            return  # given up meanwhile
        tree, words = sum_from(message, self.place.limits)
        share = self.role.absorb(self.place.party, message.number, tree, peer, words)
        if all(share.complete(name) for name in share.trees):
            del self._asked[message.number]
            self._on_summed(request)

    def _on_summed(self, request: ScoreRequest) -> None:
        waiting = self._sums.pop(request.number, None)
        if waiting is not None:
            waiting.set_result(None)
        elif self._steps_together or self.role.fresh(request):
            update = self.role.dominate(request)
            self._unsent.append((self._journal.append(update_record(update)), update))
        else:
            self.role.abandon(request)

    def progressed(self) -> None:
        """Send what is safe, begin what may be begun, and say when we have halted."""
        self._journal.write()
        while self._unsent and self._unsent[0][0] <= self._journal.safe:
            _, update = self._unsent.popleft()
            word = self.word_of(update)
            for link in self._links.values():
                link.put(word)
            self._heard[update.dominator] = update.number
            self._applier.submit(update)
        while self._may_begin():
            self.ask(self.role.pick(), self.role.outbox.sent + 1)
        if self._halting and not self._unsent:
            self._halting = False
            self.say(pb.CollaboratorWord(halted=pb.Halted(last=self.role.outbox.sent)))

    def ask(self, request: ScoreRequest, step: int = 0) -> None:
        """Ask everybody for a sum, our own part in it given."""
        self._asked[request.number] = request
        self.role.contribute(request)
        if self._sync and request.asked == "scores":
            self._answered[self.place.party] = step
        self._send(request_word(request, step))

    async def sums_of(self, requests: Sequence[ScoreRequest]) -> None:
        """Ask everybody for sums over many rows, a few at a time, and wait until all are there."""
        loop = asyncio.get_running_loop()
        self._sums |= {request.number: loop.create_future() for request in requests}
        waiting = [self._sums[request.number] for request in requests]
        for begin in range(0, len(requests), _SUMS_AT_ONCE):
            group = requests[begin : begin + _SUMS_AT_ONCE]
            await asyncio.to_thread(self._contribute_all, group)
            for request in group:
                self._asked[request.number] = request
                self._send(request_word(request))
            await asyncio.gather(*waiting[max(0, begin - _SUMS_AT_ONCE) : begin])  # the group before
        await asyncio.gather(*waiting)

    def _contribute_all(self, requests: Sequence[ScoreRequest]) -> None:
        for request in requests:
            self.role.contribute(request)

    def _send(self, word: pb.DominatorWord) -> None:
        for link in self._links.values():
            link.put(word)

    def _may_begin(self) -> bool:
        if not self._going or len(self._standing) < len(self._links) or not self.role.may_pick():
            return False
        if not self._steps_together and self.collaboration.progress.rows >= self._most_rows:
            return False  # in mode sync an epoch is a number of steps, and may have some rows more
        if self._sums and self.role.next_request - min(self._sums) > window_of(self.place.job) // 2:
            return False  # a sum over many rows must not be overtaken until nobody remembers it
        return not self._steps_together or self._step_may_begin()

    def _step_may_begin(self) -> bool:
        """Whether everybody has applied everything of the steps before; mode sync."""
        sent = self.role.outbox.sent
        return (
            sent < self._last_step
            and not self.role.outbox.in_flight
            and not self._unsent
            and not any(request.asked == "scores" for request in self._asked.values())
            and min(self.collaboration.progress.counts.values()) >= sent
        )

    def _on_halt(self) -> None:
        self._going, self._halting = False, True
        self.role.halt()
        self._asked = {
            number: request for number, request in self._asked.items() if request.asked != "scores"
        }

    def _on_go(self, epoch: int) -> None:
        train = self.place.job.train
        self._last_step = epoch * steps_of_epoch(self.place)
        # While the end of one epoch is measured, the next one may be run, but no further.
        ahead = epoch if train.update == "svrg" else min(epoch + 1, train.epochs)
        self._most_rows = ahead * self.place.limits.train
        self._going, self._halting = True, False
        self.role.outbox.max_staleness = self._most_in_flight
        self.role.resume()

    def _on_start_over(self, message: pb.StartOver) -> None:
        self._going = False
        self._asked.clear()
        super()._on_start_over(message)

    def restart_role(self, step: float) -> None:
        """Go back to the start weights, the same batches before us again."""
        self._unsent.clear()
        self.role.start_over(step)


def steps_of_epoch(place: Place) -> int:
    """Return how many updates of each dominator make an epoch in mode sync."""
    per_step = place.limits.batch_size * len(place.limits.dominators)
    return -(-place.limits.train // per_step)


def snapshot(role: Dominator) -> Callable[[], bytes]:
    """Take an active party's state as it is now; what is returned makes a checkpoint of it."""
    state = role.state()
    extra = {"sent": state.outbox.sent, "picked": state.picked, "again": list(state.again)}
    return partial(kept_to_bytes, Kept(state.collaboration, extra, tuple(state.outbox.kept.values())))


def restore(role: Dominator, journal: Journal, place: Place) -> None:
    """Go to where an earlier process stood; own updates that were written down are taken over."""
    recovered = journal.recover()
    if recovered.checkpoint is None:
        return
    kept = kept_from_bytes(recovered.checkpoint, place.limits)
    state = dominator_state(kept)
    kept_updates = {number: own_kind(update, place) for number, update in state.outbox.kept.items()}
    role.restore(replace(state, outbox=replace(state.outbox, kept=kept_updates)))
    # What waited for the disk when the state was taken had not been applied here, nor sent to anybody.
    for update in role.outbox.after(role.collaboration.progress.count_of(place.party)):
        role.apply(update)
    for content in recovered.records:
        record = record_from(content, place.limits)
        if isinstance(record, SumsRecord):
            role.collaboration.apply_sums(record.update, record.sums)
        elif isinstance(record, Update):
            record = own_kind(record, place)
            own_and_new = record.dominator == place.party and record.number > role.outbox.sent
            (role.readopt if own_and_new else role.apply)(record)
        elif isinstance(record, EpochEnd):
            role.collaboration.freeze(record)
        else:
            role.start_over(record.step)


def own_kind(update: Update, place: Place) -> Update:
    """Return an update of ours from the disk as the job has them: with θ for all to see, or not."""
    if place.job.train.theta == "plain":
        return update
    fields = (update.dominator, update.number, update.epoch, update.request, update.rows, update.thetas)
    return UnseenUpdate(*fields)


def dominator_state(kept: Kept) -> DominatorState:
    """Return an active party's state from its checkpoint."""
    outbox = OutboxState(int(kept.extra["sent"]), {update.number: update for update in kept.updates})
    return DominatorState(kept.state, outbox, int(kept.extra["picked"]), tuple(map(int, kept.extra["again"])))
