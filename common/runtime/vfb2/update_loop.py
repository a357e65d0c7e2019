"""The loop of a party in VFB²: hears dominators, answers, applies what they send, and keeps it (ADR 0014).

Everything here runs in the event loop and never waits, so that a message is handled whole. Only sums over
many rows, the disk, and the threads that apply updates (`train.threads` above 1) are elsewhere.

An update's way: heard in order → held while it is not its time → written down → applied → acknowledged. An
acknowledgement says how many updates of its dominator are applied without a gap, and how many are on disk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeVar

from google.protobuf.message import Message

from common.crypto.secure_sum import OpenShares, SumShare
from common.errors import NumericError, RemoteProtocolError, UnknownJob
from common.glm.asynchronous import EpochEnd, ScoreRequest, Update
from common.glm.collaboration import Collaboration
from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.stopwatch import Stopwatch
from common.runtime.vfb2.appliers import applier_of
from common.runtime.vfb2.journal import Journal
from common.runtime.vfb2.outbound import Outbound
from common.runtime.vfb2.place import Place, Role, Snapshot
from common.runtime.vfb2.records import update_record
from common.runtime.vfb2.sums import window_of
from common.runtime.vfb2.wire import request_from, sum_from, sum_message, update_from

W = TypeVar("W", bound=Message)

# A dominator may dial before the conducting party has reached us with the session's number.
_SESSION_WITHIN_S = 20.0


class UpdateLoop:
    """Streams, sums and updates of one party in one job; ends of epochs are for `engine`."""

    def __init__(self, place: Place, role: Role, journal: Journal, snapshot: Snapshot) -> None:
        """Take a role that stands where the journal says."""
        self.place = place
        self.role = role
        self.session = 0
        self.watch = Stopwatch()  # of this start of the service; whoever counts for the job gives its own
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._sync = place.job.train.mode == "sync"
        self._journal = journal
        self._snapshot = snapshot
        self._applier = applier_of(place.job.train.threads, role.apply, self._on_applied)
        self._turn = place.turn
        self._streams: dict[str, Outbound[pb.CollaboratorWord]] = {}
        self._parents: Mapping[str, Outbound[pb.PassedSum]] = {}
        self._heard: dict[str, int] = {}  # by dominator, the last update in order
        self._answered: dict[str, int] = {}  # by dominator, mode sync: the last step whose scores were given
        self._held: deque[Update] = deque()
        self._held_requests: deque[tuple[ScoreRequest, int]] = deque()
        self._written: deque[tuple[int, str, int]] = deque()  # record, dominator, number
        self._durable = dict(role.collaboration.progress.counts)
        self._dirty: set[str] = set()
        # Sums over both trees of all requests that may be open, and as many acknowledgements.
        self._most_waiting = 4 * window_of(place.job)
        self._trial = 0  # of step sizes, the one under way
        self._derailed = False  # it led nowhere: what belongs to it is not done
        self._end: EpochEnd | None = None
        self._finish: EpochEnd | None = None
        self._begun = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.before_finished: Callable[[int], None] = lambda _: None  # with the number of epochs
        journal.listen(self._on_durable)

    @property
    def _steps_together(self) -> bool:
        """Whether all dominators take each step together: mode sync, but not while one tries step sizes."""
        return self._sync and not self._trial

    @property
    def collaboration(self) -> Collaboration:
        """Where this party's training stands."""
        return self.role.collaboration

    def fail(self, exc: Exception) -> None:
        """End this party's part with an error, unless it has failed already."""
        if not self.failed.done():
            self.failed.set_result(exc)

    async def settle(self) -> None:
        """Wait until everything that was heard is written down and applied."""
        await self._journal.flushed()
        while not self._applier.idle:  # noqa: ASYNC110 - a few updates, in threads
            await asyncio.sleep(0.001)

    def begin(self, session: int, shares: OpenShares, parents: Mapping[str, Outbound[pb.PassedSum]]) -> None:
        """Begin a session; `settle` comes first.

        Raises:
            RemoteProtocolError: Its number is not above that of the session before.
        """
        if session <= self.session:
            raise RemoteProtocolError(f"session {session} cannot follow session {self.session}")
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        self._held.clear()
        self._held_requests.clear()
        counts = self.collaboration.progress.counts
        self._heard, self._answered = dict(counts), dict.fromkeys(counts, 0)
        self._end = self._finish = None
        self._parents = parents
        self.role.begin_session(shares, session << 32)
        self.session, self._turn = session, self.place.turn_in(session)
        self._begun.set()
        self._begun = asyncio.Event()

    async def close(self) -> None:
        """Let go of everything; the job is over, or this process stops."""
        self._applier.stop()
        for task in self._tasks:
            task.cancel()
        for stream in self._streams.values():
            stream.close()
        await self._journal.close()

    async def attend(
        self, root: str, first: pb.FromDominator, more: AsyncIterator[pb.FromDominator]
    ) -> AsyncIterator[pb.ToDominator]:
        """Serve a dominator's stream: hear what it says, and yield what we have for it."""
        await self._in_session(first.turn.round)
        self._answered[root] = max(self._answered[root], first.sent)
        out: Outbound[pb.CollaboratorWord] = Outbound()
        self._streams[root] = out
        self._acknowledge(root)
        self._on_attended(root)
        reading = asyncio.ensure_future(self._read(root, first, more))
        reading.add_done_callback(lambda _: out.close())
        try:
            async for words in out.batches():
                yield pb.ToDominator(turn=self._turn, words=words)
            await reading
        finally:
            reading.cancel()
            if self._streams.get(root) is out:
                del self._streams[root]

    def _on_attended(self, root: str) -> None:
        """Say what could not be said before a dominator's stream was there."""

    async def take_sums(self, child: str, first: pb.PassedSums, more: AsyncIterator[pb.PassedSums]) -> None:
        """Serve a child's stream of partial sums on their way to other roots."""
        await self._in_session(first.turn.round)
        self._take_passed(child, first)
        async for frame in more:
            self._take_passed(child, frame)

    def hear(self, root: str, frame: pb.FromDominator) -> None:
        """Handle what a dominator says.

        Raises:
            RemoteProtocolError: It has no right to say that, or not now.
            NumericError: An update left the numbers that can be computed with.
        """
        for word in frame.words:
            try:
                self._hear(root, word)
            except NumericError:
                self.derail()
        try:
            self._after()
        except NumericError:
            self.derail()

    def _hear(self, root: str, word: pb.DominatorWord) -> None:
        kind = word.WhichOneof("word")
        if self._derailed and kind != "start_over":
            return  # of the step size that we have given up
        if kind == "request":
            self._on_request(request_from(root, word.request, self.place.limits), word.request.step)
        elif kind == "update":
            self._on_update(update_from(root, word.update, self.place.limits))
        elif kind is None or root != self.place.job.active:
            raise RemoteProtocolError(f"{root} may not say {kind!r} in this job")
        else:
            self._on_keeper(kind, word)

    def _on_request(self, request: ScoreRequest, step: int) -> None:
        if request.asked != "scores":
            self._later(request)
        elif self._steps_together and not self._step_is_due(step):
            self._hold_request(request, step)
        else:
            self._answer(request, step)

    def _answer(self, request: ScoreRequest, step: int) -> None:
        self._answered[request.root] = step
        self.pass_on(request.root, request.number, self.role.contribute(request))

    def _later(self, request: ScoreRequest) -> None:
        """Give scores of many rows from a thread, so that nobody waits for them meanwhile."""
        if len(self._tasks) >= self._most_waiting:
            raise RemoteProtocolError(f"{request.root} asked for more sums at a time than anybody needs")
        task = asyncio.ensure_future(self._contribute(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _contribute(self, request: ScoreRequest) -> None:
        session = self.session
        try:
            share = await asyncio.to_thread(self.role.contribute, request)
            if session == self.session:
                self.pass_on(request.root, request.number, share)
        except NumericError as exc:
            self._lost(exc)
        except Exception as exc:
            self.fail(exc)

    def _lost(self, exc: NumericError) -> None:
        """Take note of numbers that nobody can compute with, met outside of a message."""
        try:
            raise exc
        except NumericError:
            self._guarded(self.derail)

    def pass_on(self, root: str, number: int, share: SumShare) -> None:
        """Send our partial sums as soon as they are complete, each once, to our parents in the trees."""
        for tree in share.trees:
            parent = share.parent(tree)
            if parent is None or tree in share.passed_on or not share.complete(tree):
                continue
            share.passed_on.add(tree)
            message = sum_message(number, tree, share.partial_sum(tree))
            if parent == root and root in self._streams:
                self._let_wait(root, self._streams[root], pb.CollaboratorWord(sum=message))
            elif parent in self._parents:
                self._let_wait(parent, self._parents[parent], pb.PassedSum(root=root, sum=message))

    def _let_wait(self, peer: str, queue: Outbound[W], word: W) -> None:
        """Put a word where it waits for a party, unless that party asks and does not read the answers."""
        if len(queue) >= self._most_waiting:
            raise RemoteProtocolError(
                f"{peer} does not read what it is sent: {len(queue)} answers wait for it"
            )
        queue.put(word)

    def _take_passed(self, child: str, frame: pb.PassedSums) -> None:
        if frame.turn.round != self.session:
            return  # of a session that is over
        for passed in frame.sums:
            if passed.root == self.place.party or passed.root not in self.place.limits.dominators:
                raise RemoteProtocolError(f"{child} passed a sum on to a root that has it otherwise, or none")
            tree, words = sum_from(passed.sum, self.place.limits)
            share = self.role.absorb(passed.root, passed.sum.number, tree, child, words)
            self.pass_on(passed.root, passed.sum.number, share)

    def _on_update(self, update: Update) -> None:
        heard = self._heard[update.dominator]
        if update.number <= heard:
            return  # sent again after a session was broken off
        if update.number > heard + 1:
            raise RemoteProtocolError(
                f"update {update.number} of {update.dominator} came after {heard}: one is missing"
            )
        if not 1 <= update.epoch <= self.collaboration.epoch + 1:
            raise RemoteProtocolError(
                f"an update of epoch {update.epoch} came in epoch {self.collaboration.epoch}"
            )
        self._heard[update.dominator] = update.number
        if self._held or not self._may_apply(update):
            self._hold(update)
        else:
            self.take(update)

    def _hold(self, update: Update) -> None:
        self._held.append(update)
        most = self.collaboration.progress.window * len(self.place.limits.dominators)
        if len(self._held) > most:
            raise RemoteProtocolError(f"more than {most} updates came before their time")

    def _hold_request(self, request: ScoreRequest, step: int) -> None:
        self._held_requests.append((request, step))
        if len(self._held_requests) > len(self.place.limits.dominators):
            raise RemoteProtocolError(
                f"{request.root} asked for scores of a step before the others were done"
            )

    def take(self, update: Update) -> None:
        """Write an update of another party down, and apply it."""
        record = self._journal.append(update_record(update))
        self._written.append((record, update.dominator, update.number))
        self._applier.submit(update)

    def _may_apply(self, update: Update) -> bool:
        if self._steps_together and min(self._answered.values()) < update.number:
            return False  # somebody's scores of this step are still to be given, from the same weights
        return self.collaboration.may_apply(update)

    def _step_is_due(self, step: int) -> bool:
        """Whether everybody's updates of the steps before are applied; mode sync."""
        return min(self.collaboration.progress.counts.values()) >= step - 1

    def _on_applied(self, update: Update, error: Exception | None) -> None:
        self._dirty.add(update.dominator)
        if isinstance(error, NumericError):
            self._lost(error)
        elif error is not None:
            self.fail(error)
        elif self.place.job.train.threads > 1:
            self._guarded(self._after)

    def _on_durable(self) -> None:
        if self._journal.failed is not None:
            self.fail(self._journal.failed)
        else:
            self._guarded(self._note_durable)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Do a step that nobody's message has asked for: its error has no stream to go to."""
        try:
            step()
        except Exception as exc:
            self.fail(exc)

    def _note_durable(self) -> None:
        while self._written and self._written[0][0] <= self._journal.durable:
            _, dominator, number = self._written.popleft()
            self._durable[dominator] = number
            self._dirty.add(dominator)
        self._after()

    def _after(self) -> None:
        """Do what has become due, and acknowledge what was done."""
        self.progressed()
        self._release()
        self._try_end()
        self._try_finish()
        for dominator in self._dirty:
            self._acknowledge(dominator)
        self._dirty.clear()

    def progressed(self) -> None:
        """Go on with what an active party has to do; a collaborator has nothing."""

    def _release(self) -> None:
        """Take what was held and is due now."""
        moved = True
        while moved:
            moved = False
            while self._held_requests and self._step_is_due(self._held_requests[0][1]):
                self._answer(*self._held_requests.popleft())
                moved = True
            while self._held and self._may_apply(self._held[0]):
                self.take(self._held.popleft())
                moved = True

    def _acknowledge(self, dominator: str) -> None:
        stream = self._streams.get(dominator)
        if stream is not None:
            applied = self.collaboration.progress.count_of(dominator)
            durable = min(self._durable.get(dominator, 0), applied)
            word = pb.CollaboratorWord(applied=pb.Applied(applied=applied, durable=durable))
            self._let_wait(dominator, stream, word)

    async def _read(self, root: str, first: pb.FromDominator, more: AsyncIterator[pb.FromDominator]) -> None:
        self.hear(root, first)
        async for frame in more:
            if frame.turn.round != self.session:
                return  # of a session that is over
            self.hear(root, frame)

    async def _in_session(self, number: int) -> None:
        try:
            async with asyncio.timeout(_SESSION_WITHIN_S):
                while self.session < number:
                    await self._begun.wait()
        except TimeoutError as exc:
            # The conducting party may have been lost between telling them and telling us.
            raise UnknownJob(f"session {number} was never begun here") from exc
        if self.session > number:
            raise UnknownJob(f"session {number} is over: {self.session} has begun")

    def _on_keeper(self, kind: str, word: pb.DominatorWord) -> None:
        """Handle what only the keeper of the epochs may say."""
        raise NotImplementedError

    def _try_end(self) -> None:
        """End an epoch if its updates are applied."""
        raise NotImplementedError

    def _try_finish(self) -> None:
        """End training if its updates are applied."""
        raise NotImplementedError

    def derail(self) -> None:
        """Give up the step size on trial, or let the error go on that is being handled."""
        raise NotImplementedError
