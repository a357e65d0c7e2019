"""Conducts VFB² from its opening to its report (protos/vfl/v1/vfb2.proto): the first active party."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from common.crypto.entropy import SystemEntropy
from common.crypto.pairwise_masks import AgreementKey
from common.data.table import Table
from common.errors import JobError, PeerUnreachable, RemoteProtocolError, UnknownJob
from common.glm.step_size import GRID, StepSchedule
from common.rpc.pb import job_pb2
from common.rpc.pb import vfb2_pb2 as pb
from common.rpc.pb.vfb2_pb2_grpc import Vfb2Stub
from common.rpc.wiretap import Wiretap
from common.runtime.checkpoint import CLOSING, Checkpoint
from common.runtime.config.party import PartyConfig
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.coordinator_client import in_round
from common.runtime.kept_data import hold_to_data
from common.runtime.state import MODEL_FILE, make_folder
from common.runtime.vfb2.columns import Columns, Labels, labels_of, prepare_columns, read_rows
from common.runtime.vfb2.guard import most_rows
from common.runtime.vfb2.guest_calls import Guest, saved_part
from common.runtime.vfb2.links import Neighbours, Streams, is_absence
from common.runtime.vfb2.place import Place
from common.runtime.vfb2.sums import open_shares, parents_of, require_hidden_sums
from common.runtime.vfb2.wire import Limits
from party_b.alignment import Aligned
from party_b.asynchronous.desk import ConductedDesk
from party_b.asynchronous.engine import KeeperEngine
from party_b.asynchronous.epochs import EpochBook, epoch_book
from party_b.asynchronous.guarded_engine import GuardedKeeperEngine
from party_b.asynchronous.guest import engine_for
from party_b.asynchronous.headway import Headway
from party_b.asynchronous.keeper import Keeper
from party_b.asynchronous.outcome import Vfb2Outcome, write_vfb2
from party_b.asynchronous.trained import Vfb2Trained
from party_b.job_life import JobLife, Opened, OwnRows, Tools, turn_of
from party_b.jobs import ActiveJob
from party_b.passive_line import PassiveLine

log = logging.getLogger("vfl.party_b")

T = TypeVar("T")

# A party that has just come back may not listen yet.
_AGAIN_AFTER_S = 0.5

# Times `deadlines.peer_s`: a party that is really gone is missed after one of them, and named.
_PATIENCE = 2


class TrainingLine(PassiveLine):
    """The conducting party's connection to one guest."""

    def __init__(
        self, name: str, own: PartyConfig, job: Vfb2Job, turn: job_pb2.Turn, wiretap: Wiretap
    ) -> None:
        super().__init__(name, own, job, turn, wiretap)
        self._training = Vfb2Stub(self._channel)

    async def prepare(self, session: int, alignment_id: bytes, rows: int) -> pb.TrainingPrepared:
        """Let the guest split and prepare its rows; it answers where its training stands."""
        request = pb.PrepareTraining(turn=in_round(self._turn, session), alignment_id=alignment_id, rows=rows)
        reply = await self._training.Prepare(request, timeout=self._step_s)
        if not reply.columns:
            raise RemoteProtocolError(f"{self.name} prepared its rows without its number of columns")
        return reply

    async def begin(self, request: pb.BeginSession) -> None:
        """Let the guest take part in a session."""
        await self._training.Begin(request, timeout=self._call_s)


@dataclass(slots=True)
class _Ready:
    """What is known once the rows are aligned and prepared here."""

    aligned: Aligned
    ids: tuple[str, ...]
    labels: Labels
    columns: Columns
    engine: KeeperEngine
    book: EpochBook
    widths: Mapping[str, int]


class Vfb2Conductor:
    """Conducts one job."""

    def __init__(self, active: ActiveJob, job: Vfb2Job, tools: Tools, desk: ConductedDesk) -> None:
        self._active = active
        self._job = job
        self._tools = tools
        self._desk = desk
        self._turn = turn_of(active)
        arguments = (tools.own, job, self._turn, tools.wiretap)
        self._lines = [TrainingLine(name, *arguments) for name in job.guests]
        self._neighbours = Neighbours(tools.own, job.guests, tools.wiretap)
        self._streams: Streams | None = None
        self._keeper: Keeper | None = None
        self._since = time.monotonic()
        self._applied = 0
        self.life = JobLife(active, tools, self._lines)

    async def run(self) -> None:
        """Open, align, prepare, train, measure, close, report; an earlier attempt may have done most."""
        checkpoint = Checkpoint.of(self._tools.store, self._active.job_id)
        try:
            kept = await asyncio.to_thread(checkpoint.kept, CLOSING)
            if kept is None:
                ready, trained = await self.life.while_present(self._work())
                # Every party has kept its part of the model: from here on the job can only finish.
                await asyncio.to_thread(checkpoint.keep, CLOSING, trained.to_json())
            else:
                ready, trained = await self._recalled(), Vfb2Trained.from_json(kept)
            replies = await self._close(ready, trained)
        finally:
            await self._leave()
        outcome = Vfb2Outcome(
            job_id=self._active.job_id,
            job=self._job,
            aligned=ready.aligned,
            columns=ready.columns,
            ids=ready.ids,
            labels=ready.labels,
            trained=trained,
            book=ready.book,
            interruptions=tuple(self._active.losses),
            seconds=self.life.seconds,
            computing=self.life.watch.seconds,
            replies=replies,
            own_traffic=self.life.traffic(),
        )
        if found := await asyncio.to_thread(outcome.trouble):
            await self._active.warn(found)
        await asyncio.to_thread(write_vfb2, outcome, self._tools.store)

    async def _close(self, ready: _Ready, trained: Vfb2Trained) -> dict[str, job_pb2.CloseJobReply]:
        rounds, store = len(ready.book.objectives) - 1, self._tools.store
        with self.life.timed("closing"):
            model = saved_part(self._guest(), ready.columns, trained.weights, rounds)
            store.write_json(self._active.job_id, MODEL_FILE, model.to_json())
            replies = await self.life.close(rounds)
            parts = {name: replies[name].model_digest for name in self._job.guests}
            store.write_json(self._active.job_id, MODEL_FILE, replace(model, parts=parts).to_json())
        return replies

    async def _recalled(self) -> _Ready:
        """Return what closing needs of an earlier attempt, which had trained and measured.

        Raises:
            JobError: The alignment is gone from the disk.
        """
        table = await asyncio.to_thread(read_rows, self._tools.own, self._job)
        aligned = await asyncio.to_thread(self.life.kept_alignment, table.ids)
        if aligned is None:
            raise JobError("the job cannot be closed: its alignment is gone from the disk")
        ready = await self._prepare(table, aligned)
        self._active.rounds = len(ready.book.objectives) - 1
        return ready

    async def _work(self) -> tuple[_Ready, Vfb2Trained]:
        with self.life.timed("opening"):
            table, opened = await self._open()
        with self.life.timed("aligning"):
            aligned = await self.life.align(opened)
        with self.life.timed("preparing"):
            ready = await self._prepare(table, aligned)
        with self.life.timed("training"):
            await self._train(ready)
        with self.life.timed("evaluating"):
            await self._active.enter("evaluating", "summing up the scores of all rows")
            if self._keeper is None:
                raise RemoteProtocolError("training ended without a session")
            scores = await self._unless_failed(ready.engine, self._keeper.measure())
        finished = ready.engine.answers.finished
        return ready, Vfb2Trained(ready.engine.role.weights, scores, ready.widths, opened.rows, finished)

    async def _open(self) -> tuple[Table, Opened]:
        own, job = self._tools.own, self._job
        await self._active.enter("opening", f"opening the job with {', '.join(job.guests)}")
        await asyncio.to_thread(require_hidden_sums, job)
        table = await asyncio.to_thread(read_rows, own, job)
        labels_of(table, job, own.party)
        return table, await self.life.open(OwnRows(table.ids, own.policy.least_common))

    async def _prepare(self, table: Table, aligned: Aligned) -> _Ready:
        own, job = self._tools.own, self._job
        await self._active.enter("preparing", f"preparing {len(aligned.alignment.rows):,} common rows")
        table = await asyncio.to_thread(table.take, aligned.alignment.rows)
        await asyncio.to_thread(hold_to_data, Checkpoint(self._guest().folder), table, job.data.dataset)
        columns = await self.life.watch.thread("preparing", prepare_columns, table, job, own.party)
        labels = labels_of(table, job, own.party)
        limits = Limits(
            len(columns.train_rows),
            len(columns.test_rows),
            most_rows(job, len(columns.train_rows)),
            job.dominators,
        )
        place = Place(own.party, job, self._turn, limits)
        kind = KeeperEngine if job.train.theta == "plain" else GuardedKeeperEngine
        engine = engine_for(kind, place, columns, labels, self._guest().folder)
        engine.watch = self.life.watch
        book = await asyncio.to_thread(epoch_book, self._tools.store, self._active.job_id)
        self._desk.add(self._active.job_id, engine)
        return _Ready(aligned, table.ids, labels, columns, engine, book, {})

    async def _train(self, ready: _Ready) -> None:
        """Train in as many sessions as it takes; a party that stays away ends the job elsewhere."""
        keeper = self._keeper = Keeper(ready.engine, ready.book, self._epoch_done)
        await self._active.enter("training", self._describe())
        told, headway = "", Headway(_PATIENCE * self._tools.own.deadlines.peer_s)
        while True:
            try:
                await self._begin_session(ready)
                await self._unless_failed(ready.engine, keeper.run())
                return
            except (PeerUnreachable, UnknownJob) as exc:
                if exc.what != told:
                    log.info("job %s: the session broke off: %s", self._active.job_id, exc)
                told = exc.what
                standing = (len(ready.book.objectives), ready.engine.collaboration.progress.applied)
                if not headway.broken_off(standing, time.monotonic()):
                    self.life.stays_away = True
                    raise PeerUnreachable(
                        f"training did not get on for {headway.patience_s:g} s, though every party is there: "
                        f"{exc.what}",
                        where=exc.where,
                        advice="look whether the addresses under `peers` are right at every party",
                    ) from exc
                await asyncio.sleep(_AGAIN_AFTER_S)

    async def _begin_session(self, ready: _Ready) -> None:
        job, engine, own = self._job, ready.engine, self._tools.own
        session = await asyncio.to_thread(ready.book.next_session)
        alignment = ready.aligned.alignment
        prepared = await asyncio.gather(
            *(line.prepare(session, alignment.alignment_id, len(alignment.rows)) for line in self._lines)
        )
        standing = dict(zip(job.guests, prepared, strict=True))
        ready.widths = {name: told.columns for name, told in standing.items()} | {
            own.party: len(ready.columns.names)
        }
        key = AgreementKey(SystemEntropy()) if job.train.aggregation == "pairwise" else None
        keys = {} if key is None else {name: told.agreement_key for name, told in standing.items()}
        if key is not None:
            keys[own.party] = key.public
        request = pb.BeginSession(
            turn=in_round(self._turn, session),
            train_rows=engine.place.limits.train,
            learning_rate=self._learning_rate(ready),
            columns=ready.widths,
            agreement_keys=keys,
        )
        if isinstance(engine, GuardedKeeperEngine):
            engine.open_to(ready.widths)
            request.theta_modulus = engine.public.modulus_bytes
            request.theta_noise_generator = engine.public.noise_generator_bytes
        await self._join(ready, request, key, standing)
        await asyncio.gather(*(line.begin(request) for line in self._lines))

    async def _join(
        self,
        ready: _Ready,
        request: pb.BeginSession,
        key: AgreementKey | None,
        standing: Mapping[str, pb.TrainingPrepared],
    ) -> None:
        """Take part ourselves: in the sums, as a collaborator of others, and as a dominator."""
        job, engine, party, session = self._job, ready.engine, self._tools.own.party, request.turn.round
        if engine.collaboration.phase == "start":
            engine.collaboration.schedule = StepSchedule(request.learning_rate, job.train.decay)
        shares = open_shares(job, party, SystemEntropy(), key, dict(request.agreement_keys))
        if self._streams is not None:
            self._streams.cancel()
        await engine.settle()
        engine.begin_answers(standing)  # before there is a stream that could break
        streams = self._streams = Streams(self._neighbours, engine.place.turn_in(session))

        def broken(peer: str, exc: Exception) -> None:
            if is_absence(exc):
                engine.interrupted(peer)
            else:
                engine.fail(exc)

        engine.begin(session, shares, streams.pass_sums(parents_of(job, party), broken))
        engine.connect(streams.dominate(engine.role.outbox, engine.hear_back, broken))

    async def _unless_failed(self, engine: KeeperEngine, work: Coroutine[Any, Any, T]) -> T:
        """Do a part of the training, unless we fail meanwhile or a stream breaks."""
        main = asyncio.ensure_future(work)
        either: set[asyncio.Future[Any]] = {main, engine.failed, engine.broken}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if engine.failed.done():
                raise engine.failed.result()
            if not main.done():
                one, other = engine.broken.result()
                raise PeerUnreachable(f"the stream of {one} to {other} broke", where=other)
            return await main
        finally:
            main.cancel()
            await asyncio.gather(main, return_exceptions=True)

    def _learning_rate(self, ready: _Ready) -> float:
        if ready.book.learning_rate is not None:
            return ready.book.learning_rate
        rate = self._job.train.learning_rate
        if rate == "auto":
            return GRID[0]  # for as long as nothing is updated with it: the keeper tries the grid
        ready.book.learning_rate = rate
        return rate

    async def _epoch_done(self, epoch: int, objective: float) -> None:
        """Tell whoever watches how the epoch ended, and how fast updates came."""
        if not epoch:
            await self._active.advance(f"objective at the start {objective:.6g}", 0.0)
            self._since = time.monotonic()
            return
        engine = self._desk.engine(self._active.job_id)
        applied = 0 if engine is None else engine.collaboration.progress.applied
        seconds = max(time.monotonic() - self._since, 1e-9)
        rate = (applied - self._applied) / seconds
        self._since, self._applied = time.monotonic(), applied
        await self._active.round_done(epoch, objective, f"{rate:,.0f} updates/s")

    def _describe(self) -> str:
        train = self._job.train
        dominators = " and ".join(self._job.dominators)
        return (
            f"{train.update} on the {train.loss} loss, {train.mode}, batches of {train.batch_size}; "
            f"{dominators} dominate{'s' if len(self._job.dominators) == 1 else ''}"
        )

    def _guest(self) -> Guest:
        """Return what a guest would know of the job, which holds for us as well."""
        folder = self._tools.store.checkpoint_dir(self._active.job_id)
        make_folder(folder)
        return Guest(self._tools.own, self._job, self._turn, self._tools.wiretap, folder)

    async def _leave(self) -> None:
        engine = self._desk.remove(self._active.job_id)
        if self._streams is not None:
            self._streams.cancel()
        if engine is not None:
            await engine.close()
        await self._neighbours.close()
