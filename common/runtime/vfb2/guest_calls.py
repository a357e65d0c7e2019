"""VFB² at a party that does not conduct the job, call by call: prepare, begin a session, keep the model."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from common.crypto.entropy import SystemEntropy
from common.crypto.pairwise_masks import AgreementKey
from common.data.table import Table
from common.errors import ColonnadeError, RemoteProtocolError
from common.glm.step_size import StepSchedule
from common.rpc.pb import job_pb2
from common.rpc.pb import vfb2_pb2 as pb
from common.rpc.wiretap import Wiretap
from common.runtime.checkpoint import TRAINED, Checkpoint
from common.runtime.config.party import PartyConfig
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.guest.align_calls import AlignmentCalls
from common.runtime.guest.job_calls import JobCalls
from common.runtime.kept_data import hold_to_data
from common.runtime.saved_model import SavedModel, saved_loss
from common.runtime.vfb2.columns import Columns, prepare_columns
from common.runtime.vfb2.engine import Engine
from common.runtime.vfb2.guard import most_rows
from common.runtime.vfb2.links import Neighbours, Streams, is_absence
from common.runtime.vfb2.place import Place
from common.runtime.vfb2.sums import dialled_by, open_shares, parents_of
from common.runtime.vfb2.wire import Limits, step_from
from common.types import Floats


@dataclass(frozen=True, slots=True)
class Guest:
    """What a guest's part in a job needs to know.

    Attributes:
        own: This party.
        job: The job.
        turn: Of the job, outside sessions.
        wiretap: Of this party.
        folder: Of the job, in this party's state.
    """

    own: PartyConfig
    job: Vfb2Job
    turn: job_pb2.Turn
    wiretap: Wiretap
    folder: Path


class TrainingCalls(JobCalls):
    """The state of one job at one guest."""

    def __init__(self, guest: Guest, table: Table, alignment: AlignmentCalls) -> None:
        """Take a job that was admitted.

        Raises:
            ConfigError: Our own file has no address of a party whom we would have to dial.
        """
        super().__init__(alignment)
        self.folder = guest.folder
        self._guest = guest
        self._table = table
        self._neighbours = Neighbours(guest.own, dialled_by(guest.job, guest.own.party), guest.wiretap)
        self._columns: Columns | None = None
        self._streams: Streams | None = None
        self._key: tuple[int, AgreementKey] | None = None
        self._preparing = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self.engine: Engine | None = None
        self.on_failure: Callable[[Exception], None] = lambda _: None

    @abstractmethod
    def make_engine(self, place: Place, columns: Columns, table: Table) -> Engine:
        """Return the engine with this party's role, standing where the journal says."""

    async def prepare(self, request: pb.PrepareTraining) -> pb.TrainingPrepared:
        """Split and prepare the aligned rows, and say where our training stands."""
        rows = self.alignment.rows(request.alignment_id, request.rows)
        async with self._preparing:
            if self.engine is None or self._columns is None:
                table = await self.watch.thread("preparing", self._table.take, rows)
                own, job = self._guest.own, self._guest.job
                await asyncio.to_thread(hold_to_data, Checkpoint(self.folder), table, job.data.dataset)
                self._columns = await self.watch.thread("preparing", prepare_columns, table, job, own.party)
                self.engine = self.make_engine(self._place(self._columns), self._columns, table)
                self.engine.watch = self.watch
                self.engine.before_finished = self._keep_trained
                self._watching = asyncio.ensure_future(self._watch(self.engine))
        return self._prepared(request.turn, self.engine, self._columns)

    async def begin(self, request: pb.BeginSession) -> pb.SessionBegun:
        """Take part in a session: dial those whom we have to, and answer those who dial us."""
        engine, columns = self._ready()
        job, party, session = self._guest.job, self._guest.own.party, request.turn.round
        if session == engine.session:
            return pb.SessionBegun(turn=request.turn)
        self._check(request, columns)
        if engine.collaboration.phase == "start":
            engine.collaboration.schedule = StepSchedule(step_from(request.learning_rate), job.train.decay)
        key = self._key[1] if self._key is not None and self._key[0] == session else None
        shares = open_shares(job, party, SystemEntropy(), key, dict(request.agreement_keys))
        if self._streams is not None:
            self._streams.cancel()
        await engine.settle()
        self._streams = Streams(self._neighbours, engine.place.turn_in(session))
        parents = self._streams.pass_sums(parents_of(job, party), self._broken)
        engine.begin(session, shares, parents)
        self.dominate(engine, self._streams)
        return pb.SessionBegun(turn=request.turn)

    def dominate(self, engine: Engine, streams: Streams) -> None:
        """Dial everybody as a dominator; a collaborator does not."""

    async def leave(self) -> None:
        """Let go of everything; the job is over."""
        if self._watching is not None and self._watching is not asyncio.current_task():
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        if self._streams is not None:
            self._streams.cancel()
        if self.engine is not None:
            await self.engine.close()
        await self._neighbours.close()

    def model(self, job_id: str, rounds: int) -> dict[str, object]:
        """Return this party's part of the model.

        Raises:
            RemoteProtocolError: Training has not finished here.
        """
        engine, columns = self._ready()
        if engine.collaboration.phase != "finished":
            raise RemoteProtocolError("the job is said to have finished; training has not finished here")
        weights = engine.collaboration.block.weights
        return saved_part(self._guest, columns, weights, rounds).to_json()

    def notes(self) -> list[str]:
        """Return what became of this party's own rows."""
        return [] if self._columns is None else list(self._columns.notes)

    def _keep_trained(self, rounds: int) -> None:
        """Keep our part of the model: from here on closing needs nothing else, also after a restart."""
        guest = self._guest
        spent = self.spent(guest.wiretap.totals(guest.turn.job_id)).to_json()
        model = self.model(guest.turn.job_id, rounds)
        Checkpoint(guest.folder).keep(TRAINED, {"rounds": rounds, "model": model, "spent": spent})

    def _broken(self, peer: str, exc: Exception) -> None:
        engine, _ = self._ready()
        if is_absence(exc):
            engine.interrupted(peer)
        else:
            engine.fail(exc)

    async def _watch(self, engine: Engine) -> None:
        exc = await asyncio.shield(engine.failed)
        self.on_failure(exc)

    def _place(self, columns: Columns) -> Place:
        job = self._guest.job
        limits = Limits(
            len(columns.train_rows),
            len(columns.test_rows),
            most_rows(job, len(columns.train_rows)),
            job.dominators,
        )
        return Place(self._guest.own.party, job, self._guest.turn, limits)

    def _prepared(self, turn: job_pb2.Turn, engine: Engine, columns: Columns) -> pb.TrainingPrepared:
        training = engine.collaboration
        reply = pb.TrainingPrepared(
            turn=turn,
            train_rows=len(columns.train_rows),
            test_rows=len(columns.test_rows),
            columns=len(columns.names),
            epoch=training.epoch,
            awaits_reference=training.phase == "referring",
        )
        if self._guest.job.train.aggregation == "pairwise":
            # A repeated call of one session gets the same key; another session never does.
            if self._key is None or self._key[0] != turn.round:
                self._key = turn.round, AgreementKey(SystemEntropy())
            reply.agreement_key = self._key[1].public
        return reply

    def _check(self, request: pb.BeginSession, columns: Columns) -> None:
        """Hold what the conducting party says to what we know."""
        job, party = self._guest.job, self._guest.own.party
        if request.train_rows != len(columns.train_rows):
            raise RemoteProtocolError(
                f"{request.train_rows} training rows there, {len(columns.train_rows)} here: "
                "the sides split differently"
            )
        told = dict(request.columns)
        if set(told) != set(job.members) or told[party] != len(columns.names) or min(told.values()) < 1:
            raise RemoteProtocolError("the columns of the parties are not those that were declared")
        if job.train.learning_rate not in ("auto", request.learning_rate):
            raise RemoteProtocolError("the step size is not the one in the job")

    def _ready(self) -> tuple[Engine, Columns]:
        if self.engine is None or self._columns is None:
            raise RemoteProtocolError("the job has not been prepared yet")
        return self.engine, self._columns


def saved_part(guest: Guest, columns: Columns, weights: Floats, rounds: int) -> SavedModel:
    """Return a guest's part of the model as model.json keeps it."""
    job = guest.job
    party = guest.own.party
    is_active = party in job.dominators
    return SavedModel(
        job_id=guest.turn.job_id,
        job=job.job,
        party=party,
        algorithm=job.algorithm,
        loss=saved_loss(job),
        active=job.active,
        passive=job.passive,
        also_active=job.also_active,
        rounds=rounds,
        preprocessing=columns.preprocessing,
        coefficients=weights[: len(columns.preprocessing.features)],
        intercept=float(weights[-1]) if party == job.active and job.data.intercept else None,
        label=job.data.label_of(party) if is_active else None,
        positive=job.data.positive if is_active else None,
        notes=columns.notes,
    )


def heard_failure(exc: Exception) -> str:
    """Return why a guest's part failed, in words that may leave the party."""
    return exc.what if isinstance(exc, ColonnadeError) else f"a bug ({type(exc).__name__})"
