"""A passive party's side of encrypted linear regression, call by call: converts, and calls the role."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress

from common.crypto.cipher import Cipher, parse_ciphertexts
from common.crypto.entropy import SystemEntropy
from common.crypto.fixed_point import FixedPoint
from common.data.table import Table
from common.errors import ColonnadeError, RemoteProtocolError
from common.glm.losses import SQUARED
from common.glm.solvers import GradientDescent
from common.rpc.chunks import chunk_slices, flowing_slices
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.runtime.config_job import JobConfig
from common.runtime.coordinator_client import CoordinatorClient
from common.runtime.linear_design import LinearDesign, cipher_for, plain_design, prove_plan
from common.runtime.noise_ahead import NoiseAhead
from common.types import Ints
from party_a.align_calls import AlignmentCalls
from party_a.he_linear import PassiveRegression

_SCORE_BYTES = 8  # a partial score in the clear is a double


class LinearCalls:
    """The state of one job at one passive party."""

    def __init__(
        self,
        party: str,
        job: JobConfig,
        table: Table,
        alignment: AlignmentCalls,
        coordinator: CoordinatorClient,
        executor: Executor,
    ) -> None:
        self.alignment = alignment
        self.coordinator = coordinator
        self.opened: asyncio.Future[pb.OpenJobReply] = asyncio.get_running_loop().create_future()
        self.attendance: asyncio.Future[None] | None = None
        self.watch = alignment.watch
        self._party = party
        self._job = job
        self._table = table
        self._design: LinearDesign | None = None
        self._executor = executor
        self._role: PassiveRegression | None = None
        self._cipher: Cipher | None = None
        self._ahead: NoiseAhead | None = None
        self._applying = asyncio.Lock()
        self._last: he.RoundApplied | None = None
        self._measured = False

    async def build_design(self, turn: pb.Turn, rows: Ints) -> he.BuildDesignReply:
        """Split and prepare the aligned rows, and declare the columns at the coordinator.

        The largest eigenvalue is told only if the job asks for an automatic step size.
        """
        if self._design is None:
            aligned = await self.watch.thread("preparing", self._table.take, rows)
            self._design = await self.watch.thread("preparing", plain_design, aligned, self._job)
        design = self._design
        await self.coordinator.open_job(design.columns)
        reply = he.BuildDesignReply(turn=turn, train_rows=len(design.train), columns=design.columns)
        if self._job.train.learning_rate == "auto":
            reply.curvature = await self.watch.thread("preparing", design.curvature)
        return reply

    async def prepare(self, request: he.PrepareRequest) -> he.PrepareReply:
        """Prove the plan, fetch the public key from the coordinator itself, and take the role."""
        design = self.design
        columns = self._checked(request)
        await self.watch.thread("preparing", prove_plan, design, self._job, columns)
        key = await self.coordinator.public_key()
        if self._role is None:
            self._cipher = cipher_for(self._job, key, self._executor)
            self._role = PassiveRegression(
                design.matrix[design.train],
                design.schedule,
                GradientDescent(design.step(request.learning_rate), SQUARED),
                self._cipher,
                FixedPoint(self._job.crypto.precision_bits),
                SystemEntropy(),
            )
            # In a round: a score a row, the loss share, and the gradient.
            sealed = len(self.design.schedule.rows_of(1)) + 1 + self.design.columns
            self._ahead = NoiseAhead(self._cipher, self._executor, sealed)
        return he.PrepareReply(turn=request.turn, key_id=key.key_id)

    async def encrypt_scores(self, turn: pb.Turn) -> AsyncIterator[he.EncryptedScores]:
        """Step 1: yield [[u_A]] of the round's rows, and [[L_A]] with the last of them."""
        role, cipher = self._ready()
        self._require_training()
        rows = await self.watch.thread("scores", role.begin, turn.round)
        if turn.round == self._job.train.max_rounds:
            self._finish_noise()
        alone = len(self._job.passive) == 1
        for part in flowing_slices(rows, cipher.key.ciphertext_bytes):
            sealed = await self.watch.thread("scores", role.encrypt_scores, part)
            chunk = he.EncryptedScores(turn=turn, ciphertexts=sealed.to_bytes())
            if part.stop == rows and alone and self._job.train.has_loss(turn.round):
                share = await self.watch.thread("loss", role.loss_share_from_scores)
                chunk.loss_share = share.to_bytes()
            yield chunk

    async def apply_residuals(
        self, first: he.EncryptedResiduals, more: AsyncIterator[he.EncryptedResiduals]
    ) -> he.RoundApplied:
        """Steps 3 and 4: X_A'[[d]], mask, have it decrypted, unmask, update."""
        async with self._applying:
            role, _ = self._ready()
            if self._last is not None and first.turn.round == self._last.turn.round:
                return self._last
            # A round that had begun before the scores were sent must not be finished after them.
            self._require_training()
            if first.turn.round != role.applied + 1:
                raise RemoteProtocolError(
                    f"residuals of round {first.turn.round} came after round {role.applied}"
                )
            await self._absorb(role, first, first.turn)
            async for chunk in more:
                await self._absorb(role, chunk, first.turn)
            masked = await self.watch.thread("gradient", role.masked_gradient)
            residues = await self.coordinator.decrypt_gradient(first.turn.round, masked)
            role.apply(residues)
            reply = he.RoundApplied(turn=first.turn)
            if len(self._job.passive) > 1 and self._job.train.has_loss(first.turn.round):
                share = await self.watch.thread("loss", role.loss_share_from_gradient)
                reply.loss_share = share.to_bytes()
            self._last = reply
            return reply

    def partial_scores(self, turn: pb.Turn) -> Iterator[he.PartialScores]:
        """Yield u_A of all aligned rows, in the clear: the price of measuring the model.

        Training is over with that: scores of the same rows under several weights would show the features.
        """
        role, _ = self._ready()
        if not role.applied:
            raise RemoteProtocolError("partial scores were asked for before any round")
        if self._applying.locked():
            raise RemoteProtocolError("partial scores were asked for in the middle of a round")
        self._measured = True
        scores = self.design.matrix @ role.weights
        for part in chunk_slices(len(scores), _SCORE_BYTES):
            yield he.PartialScores(turn=turn, scores=scores[part].tolist())

    def model(self, job_id: str, rounds: int) -> dict[str, object]:
        """Return this party's part of the model, to be kept on its own disk.

        Raises:
            RemoteProtocolError: The job is said to have finished after another round than ours.
        """
        role, _ = self._ready()
        if rounds != role.applied:
            raise RemoteProtocolError(
                f"the job finished after round {rounds}; here round {role.applied} is the last"
            )
        return {
            "job_id": job_id,
            "job": self._job.job,
            "party": self._party,
            "algorithm": self._job.algorithm,
            "rounds": rounds,
            "features": list(self.design.features),
            "coefficients": role.weights.tolist(),
            "intercept": None,
            "preprocessing": self.design.scaling.to_json(),
            "notes": list(self.design.notes),
        }

    async def leave(self) -> None:
        """Let go of the coordinator; the job is over."""
        self._finish_noise()
        if self.attendance is not None and self.attendance is not asyncio.current_task():
            self.attendance.cancel()
            with suppress(asyncio.CancelledError, ColonnadeError):
                await self.attendance
        await self.coordinator.disconnect()

    async def _absorb(self, role: PassiveRegression, chunk: he.EncryptedResiduals, turn: pb.Turn) -> None:
        if chunk.turn != turn:
            raise RemoteProtocolError("one stream speaks of two turns")
        _, cipher = self._ready()
        vector = parse_ciphertexts(chunk.ciphertexts, cipher.key, None)
        await self.watch.thread("gradient", role.absorb_residuals, vector)

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
        if not (math.isfinite(request.learning_rate) and request.learning_rate > 0):
            raise RemoteProtocolError("the step size is not a positive number")
        if rate not in ("auto", request.learning_rate):
            raise RemoteProtocolError("the step size is not the one in the job")
        return columns

    @property
    def design(self) -> LinearDesign:
        """This party's columns of the aligned rows.

        Raises:
            RemoteProtocolError: The rows were not named yet.
        """
        if self._design is None:
            raise RemoteProtocolError("the job's rows have not been aligned yet")
        return self._design

    def _finish_noise(self) -> None:
        if self._ahead is not None:
            self._ahead.finish()

    def _require_training(self) -> None:
        if self._measured:
            raise RemoteProtocolError("no round can follow after the partial scores were sent in the clear")

    def _ready(self) -> tuple[PassiveRegression, Cipher]:
        if self._role is None or self._cipher is None:
            raise RemoteProtocolError("the job has not been prepared yet")
        return self._role, self._cipher
