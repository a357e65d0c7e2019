"""What a passive party does in encrypted regression whatever its rounds are: prepare, turn, measure, keep."""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from common.crypto.cipher import Cipher
from common.data.table import Table
from common.errors import ColonnadeError, RemoteProtocolError
from common.glm.solvers import BlockSolver, SolverState
from common.rpc.chunks import chunk_slices
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.rpc.wiretap import Traffic
from common.runtime.checkpoint import Checkpoint
from common.runtime.config.job import JobConfig
from common.runtime.coordinator_client import CoordinatorClient
from common.runtime.guest.align_calls import AlignmentCalls
from common.runtime.guest.job_calls import JobCalls
from common.runtime.linear_design import LinearDesign, cipher_for, loss_of, plain_design, prove_plan
from common.runtime.linear_solver import passive_solver
from common.runtime.memory import give_back
from common.runtime.noise_ahead import NoiseAhead
from common.runtime.saved_model import SavedModel, saved_loss
from common.types import Floats, Ints
from party_a.kept_rounds import KeptRounds
from party_a.solver_turns import SolverTurns

_SCORE_BYTES = 8  # a partial score in the clear is a double


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a job is computed, and where it is kept.

    Attributes:
        traffic: Says what the job has sent and received in this attempt.
    """

    executor: Executor
    checkpoint: Checkpoint
    traffic: Callable[[], Traffic]


class Role(Protocol):
    """What both kinds of rounds have in common."""

    applied: int

    @property
    def weights(self) -> Floats:
        """The weights so far."""
        ...

    def state(self) -> SolverState:
        """Return what the next round needs."""
        ...

    def go_on(self, number: int, state: SolverState) -> None:
        """Continue after a round."""
        ...


class RegressionCalls(JobCalls):
    """The state of one job at one passive party."""

    def __init__(
        self,
        party: str,
        job: JobConfig,
        table: Table,
        alignment: AlignmentCalls,
        coordinator: CoordinatorClient,
        place: Workplace,
    ) -> None:
        super().__init__(alignment)
        self.coordinator = coordinator
        self.attendance: asyncio.Future[None] | None = None
        self.applying = asyncio.Lock()
        self._designing = asyncio.Lock()
        self._preparing = asyncio.Lock()
        self._party = party
        self._job = job
        self._table = table
        self._design: LinearDesign | None = None
        self._executor = place.executor
        self._place = place
        self._rounds: KeptRounds | None = None
        self._role: Role | None = None
        self._turns: SolverTurns | None = None
        self._ahead: NoiseAhead | None = None
        self._measured = False

    @abstractmethod
    async def take_role(self, cipher: Cipher, solver: BlockSolver, columns: Mapping[str, int]) -> Role:
        """Return the role that the job's rounds ask for."""

    @abstractmethod
    def sealed_in_round(self) -> int:
        """Return how many ciphertexts this party seals in a round."""

    async def build_design(self, turn: pb.Turn, rows: Ints) -> he.BuildDesignReply:
        """Split and prepare the aligned rows, and declare the columns at the coordinator.

        The largest eigenvalue is told only if the job asks for an automatic step size.
        """
        async with self._designing:
            if self._design is None:
                self._design = await self.watch.thread("preparing", self._designed, rows)
                # From here on only the design is needed, and the calls that would need more have gone by.
                self._table = self._table.take(np.zeros(0, dtype=np.int64))
                self.alignment.done()
                await asyncio.to_thread(give_back)
        design = self._design
        await self.coordinator.open_job(design.columns)
        reply = he.BuildDesignReply(turn=turn, train_rows=len(design.train), columns=design.columns)
        if self._job.needs_curvature:
            reply.curvature = await self.watch.thread("preparing", design.curvature, loss_of(self._job))
        return reply

    def _designed(self, rows: Ints) -> LinearDesign:
        return plain_design(self._table.take(rows), self._job)

    async def prepare(self, request: he.PrepareRequest) -> he.PrepareReply:
        """Prove the plan, fetch the public key from the coordinator itself, and take the role."""
        columns = self._checked(request)
        # Two at the same moment would take the role twice, the second one after rounds of the first.
        async with self._preparing:
            await self._recall(request)
            await self.watch.thread("preparing", prove_plan, self.design, self._job, columns)
            key = await self.coordinator.public_key(columns)
            if self._role is None:
                solver = await self.watch.thread(
                    "preparing", passive_solver, self.design, self._job, request.learning_rate
                )
                cipher = cipher_for(self._job, key, self._executor)
                self._turns = SolverTurns(solver)
                self._role = await self.take_role(cipher, solver, columns)
                self._ahead = NoiseAhead(cipher, self._executor, self.sealed_in_round())
        return he.PrepareReply(turn=request.turn, key_id=key.key_id)

    async def stand(self, turn: pb.Turn) -> he.Standing:
        """Say which rounds, and which shares, earlier attempts have left on our disk."""
        self._ready()
        shares = await asyncio.to_thread(self.kept_shares)
        return he.Standing(turn=turn, rounds=self.rounds.possible, shares=shares)

    async def go_on(self, request: he.GoOnRequest) -> he.GoneOn:
        """Continue after the round that all parties have.

        Raises:
            RemoteProtocolError: That round is not one to which this party may go back.
        """
        role, number = self._ready(), request.turn.round
        if role.applied not in (0, number):
            # Never back in the middle of an attempt: each repeated round is one more to be learnt from.
            raise RemoteProtocolError(
                f"the job has gone on already: the last round applied is {role.applied}"
            )
        state = self.rounds.go_on(number)
        if state is not None:
            role.go_on(number, state)
        self.turns.go_on(request.turn)
        self._measured = self.rounds.has_trained
        await asyncio.to_thread(self.restore_shares, request.shares)
        return he.GoneOn(turn=request.turn)

    def kept_shares(self) -> dict[str, int]:
        """Return with whom cross products are shared on our disk, and since which attempt."""
        return {}

    def restore_shares(self, parties: Collection[str]) -> None:
        """Take shares back from our disk."""

    @property
    def turns(self) -> SolverTurns:
        """What the solver needs between rounds.

        Raises:
            RemoteProtocolError: The job has not been prepared yet.
        """
        if self._turns is None:
            raise RemoteProtocolError("the job has not been prepared yet")
        return self._turns

    async def take_step(self, request: he.StepRequest) -> he.StepTaken:
        """With conjugate gradients: move along the direction of the round that was applied last."""
        self.require_training()
        number, applied = request.turn.round, self._ready().applied
        if self.applying.locked() or not number or number != applied:
            raise RemoteProtocolError(
                f"a step of round {number} was asked for; the last one applied is {applied}"
            )
        taken = self.turns.take_step(request)
        await self.keep_round()
        return taken

    async def keep_round(self) -> None:
        """Keep the round that was applied last, before anybody hears of it."""
        role = self._ready()
        await asyncio.to_thread(self.rounds.keep, role.applied, role.state())

    async def partial_scores(self, turn: pb.Turn) -> AsyncIterator[he.PartialScores]:
        """Yield u_A of all aligned rows, in the clear: the price of measuring the model.

        Training is over with that: scores of the same rows under several weights would show the features.
        """
        role = self._ready()
        if not role.applied:
            raise RemoteProtocolError("partial scores were asked for before any round")
        if self.applying.locked():
            raise RemoteProtocolError("partial scores were asked for in the middle of a round")
        self._measured = True
        model = self.model(turn.job_id, role.applied)
        await asyncio.to_thread(self.rounds.keep_trained, role.applied, model)
        scores = self.design.matrix @ role.weights
        for part in chunk_slices(len(scores), _SCORE_BYTES):
            yield he.PartialScores(turn=turn, scores=scores[part].tolist())

    def model(self, job_id: str, rounds: int) -> dict[str, object]:
        """Return this party's part of the model, to be kept on its own disk.

        Raises:
            RemoteProtocolError: The job is said to have finished after another round than ours.
        """
        role = self._ready()
        if rounds != role.applied:
            raise RemoteProtocolError(
                f"the job finished after round {rounds}; here round {role.applied} is the last"
            )
        return SavedModel(
            job_id=job_id,
            job=self._job.job,
            party=self._party,
            algorithm=self._job.algorithm,
            loss=saved_loss(self._job),
            active=self._job.active,
            passive=self._job.passive,
            rounds=rounds,
            preprocessing=self.design.scaling,
            coefficients=role.weights,
            notes=self.design.notes,
        ).to_json()

    async def leave(self) -> None:
        """Let go of the coordinator; the job is over."""
        self.finish_noise()
        if self.attendance is not None and self.attendance is not asyncio.current_task():
            self.attendance.cancel()
            with suppress(asyncio.CancelledError, ColonnadeError):
                await self.attendance
        await self.coordinator.disconnect()

    @property
    def rounds(self) -> KeptRounds:
        """What this party keeps of its rounds.

        Raises:
            RemoteProtocolError: The job has not been prepared yet.
        """
        if self._rounds is None:
            raise RemoteProtocolError("the job has not been prepared yet")
        return self._rounds

    async def _recall(self, request: he.PrepareRequest) -> None:
        """Read what earlier attempts have kept, and make sure that it is of the same data."""
        if self._rounds is not None:
            return
        place = self._place
        rounds = await asyncio.to_thread(KeptRounds, place.checkpoint, lambda: self.spent(place.traffic()))
        facts = {
            "data": await asyncio.to_thread(self.design.fingerprint),
            "columns": dict(sorted(request.columns.items())),
            "learning_rate": request.learning_rate,
        }
        await asyncio.to_thread(rounds.begin, facts)
        self.before, self._rounds = rounds.before, rounds

    def _checked(self, request: he.PrepareRequest) -> Mapping[str, int]:
        """Hold what B says to what A knows."""
        if request.train_rows != len(self.design.train):
            raise RemoteProtocolError(
                f"{request.train_rows} training rows there, {len(self.design.train)} here: "
                "the sides split differently"
            )
        columns, parties = dict(request.columns), {self._job.active, *self._job.passive}
        if (
            set(columns) != parties
            or columns[self._party] != self.design.columns
            or min(columns.values()) < 1
        ):
            raise RemoteProtocolError("the columns of the parties are not those that were declared")
        rate = self._job.train.learning_rate
        if self._job.train.solver != "gd":
            return columns
        if not (math.isfinite(request.learning_rate) and request.learning_rate > 0):
            raise RemoteProtocolError("the step size is not a positive number")
        if rate not in ("auto", request.learning_rate):
            raise RemoteProtocolError("the step size is not the one in the job")
        return columns

    def finish_noise(self) -> None:
        """Prepare no more noise: the last round has begun, or the job is over."""
        if self._ahead is not None:
            self._ahead.finish()

    @property
    def design(self) -> LinearDesign:
        """This party's columns of the aligned rows.

        Raises:
            RemoteProtocolError: The rows were not named yet.
        """
        if self._design is None:
            raise RemoteProtocolError("the job's rows have not been aligned yet")
        return self._design

    def require_training(self) -> None:
        """Refuse a round once the partial scores have been sent, and one that begins anew what is kept."""
        self.rounds.require_went_on()
        if self._measured:
            raise RemoteProtocolError("no round can follow after the partial scores were sent in the clear")

    def _ready(self) -> Role:
        if self._role is None:
            raise RemoteProtocolError("the job has not been prepared yet")
        return self._role
