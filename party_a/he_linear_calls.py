"""A passive party's side of row-wise rounds, call by call: converts, and calls the role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from common.crypto.cipher import Cipher, parse_ciphertexts
from common.crypto.entropy import SystemEntropy
from common.crypto.fixed_point import FixedPoint
from common.errors import RemoteProtocolError
from common.glm.solvers import BlockSolver
from common.rpc.chunks import flowing_slices
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from party_a.he_linear import PassiveRegression
from party_a.regression_calls import RegressionCalls


class LinearCalls(RegressionCalls):
    """The state of one job with row-wise rounds at one passive party."""

    _rows: PassiveRegression | None = None
    _cipher: Cipher | None = None
    _last: he.RoundApplied | None = None

    async def take_role(
        self, cipher: Cipher, solver: BlockSolver, columns: Mapping[str, int]
    ) -> PassiveRegression:
        """Return the role of row-wise rounds; `columns` are not needed for it."""
        self._cipher = cipher
        self._rows = PassiveRegression(
            self.design.matrix[self.design.train],
            self.design.schedule,
            solver,
            cipher,
            FixedPoint(self._job.crypto.precision_bits),
            SystemEntropy(),
        )
        return self._rows

    def sealed_in_round(self) -> int:
        """Return how many ciphertexts a round seals: a score a row, the loss share, and the gradient."""
        role, _ = self._rowwise()
        return len(self.design.schedule.rows_of(1)) + 1 + role.gradient_length

    async def encrypt_scores(self, request: he.ScoresRequest) -> AsyncIterator[he.EncryptedScores]:
        """Step 1: yield [[u_A]] of the round's rows, and [[L_A]] with the last of them."""
        turn = request.turn
        role, cipher = self._rowwise()
        self.require_training()
        self.turns.begin(turn.round, request.mixing, request.scale)
        rows = await self.watch.thread("scores", role.begin, turn.round)
        if turn.round == self._job.train.max_rounds:
            self.finish_noise()
        alone = len(self._job.passive) == 1
        for part in flowing_slices(rows, cipher.key.ciphertext_bytes):
            sealed = await self.watch.thread("scores", role.encrypt_scores, part)
            chunk = he.EncryptedScores(turn=turn, ciphertexts=sealed.to_bytes())
            if part.stop == rows and alone and self._job.decrypts_loss(turn.round):
                share = await self.watch.thread("loss", role.loss_share_from_scores)
                chunk.loss_share = share.to_bytes()
            yield chunk

    async def apply_residuals(
        self, first: he.EncryptedResiduals, more: AsyncIterator[he.EncryptedResiduals]
    ) -> he.RoundApplied:
        """Steps 3 and 4: X_A'[[d]], mask, have it decrypted, unmask, update."""
        async with self.applying:
            role, _ = self._rowwise()
            if self._last is not None and first.turn.round == self._last.turn.round:
                return self._last
            # A round that had begun before the scores were sent must not be finished after them.
            self.require_training()
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
            reply = he.RoundApplied(turn=first.turn, curvature=self.turns.curvature())
            if len(self._job.passive) > 1 and self._job.decrypts_loss(first.turn.round):
                share = await self.watch.thread("loss", role.loss_share_from_gradient)
                reply.loss_share = share.to_bytes()
            if self._job.train.solver == "gd":
                await self.keep_round()
            self._last = reply
            return reply

    async def _absorb(self, role: PassiveRegression, chunk: he.EncryptedResiduals, turn: pb.Turn) -> None:
        if chunk.turn != turn:
            raise RemoteProtocolError("one stream speaks of two turns")
        _, cipher = self._rowwise()
        vector = parse_ciphertexts(chunk.ciphertexts, cipher.key, None)
        await self.watch.thread("gradient", role.absorb_residuals, vector)

    def _rowwise(self) -> tuple[PassiveRegression, Cipher]:
        if self._rows is None or self._cipher is None:
            raise RemoteProtocolError("the job has not been prepared yet, or has no row-wise rounds")
        return self._rows, self._cipher
