"""A passive party in encrypted regression: one method a call of protos/vfl/v1/he_linear.proto."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence

import numpy as np

from common.crypto.cipher import SealedVector
from common.errors import RemoteProtocolError
from common.glm.conjugate import Turn
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.rpc.wiretap import Wiretap
from common.runtime.config.job import JobConfig
from common.runtime.config.party import PartyConfig
from common.runtime.coordinator_client import in_round
from common.types import Floats
from party_b.passive_line import PassiveLine
from party_b.regression.gram_client import GramClient

# The end of the round's residuals on their way to one passive party.
Residuals = asyncio.Queue[SealedVector | None]


class PassiveClient(PassiveLine):
    """The active party's connection to one passive party in encrypted regression."""

    def __init__(self, name: str, own: PartyConfig, job: JobConfig, turn: pb.Turn, wiretap: Wiretap) -> None:
        super().__init__(name, own, job, turn, wiretap)
        self._job = job

    async def build_design(self, alignment_id: bytes, rows: int) -> he.BuildDesignReply:
        """Let the party split and scale its aligned rows.

        Raises:
            RemoteProtocolError: It has no columns, or no curvature that gives an automatic step size.
        """
        request = he.BuildDesignRequest(turn=self._turn, alignment_id=alignment_id, rows=rows)
        reply = await self._stub.BuildDesign(request, timeout=self._step_s)
        if reply.columns < 1:
            raise RemoteProtocolError(f"{self.name} aligned its rows without its number of columns")
        if self._job.train.learning_rate == "auto" and not 0 <= reply.curvature < math.inf:
            raise RemoteProtocolError(f"{self.name} told no curvature that gives a step size")
        return reply

    async def prepare(self, request: he.PrepareRequest) -> he.PrepareReply:
        """Let the party prove its plan and fetch the public key."""
        return await self._stub.Prepare(request, timeout=self._step_s)

    async def stand(self) -> he.Standing:
        """Return which rounds and shares earlier attempts have left at the party."""
        return await self._stub.Stand(he.StandingRequest(turn=self._turn), timeout=self._call_s)

    async def go_on(self, number: int, shares: Sequence[str]) -> None:
        """Let the party continue after a round, with the kept shares of some pairs."""
        request = he.GoOnRequest(turn=in_round(self._turn, number), shares=shares)
        await self._stub.GoOn(request, timeout=self._call_s)

    def in_gram_rounds(self, most_bytes: int) -> GramClient:
        """Return the calls of Gram rounds on this connection; `most_bytes` is the longest direction."""
        return GramClient(self.name, self._stub, in_round(self._turn, 0), self._step_s, most_bytes)

    async def encrypt_scores(self, number: int, turned: Turn) -> AsyncIterator[he.EncryptedScores]:
        """Step 1: yield the round's [[v_A]] in chunks."""
        turn = in_round(self._turn, number)
        request = he.ScoresRequest(turn=turn, mixing=turned.mixing, scale=turned.scale)
        async for chunk in self._stub.EncryptScores(request, timeout=self._step_s):
            if chunk.turn != turn:
                raise RemoteProtocolError(f"{self.name} answered round {number} with another turn")
            yield chunk

    async def apply_residuals(self, number: int, residuals: Residuals) -> he.RoundApplied:
        """Step 2: send the round's [[d]] as it is made; return when the party has updated its weights."""
        turn = in_round(self._turn, number)

        async def chunks() -> AsyncIterator[he.EncryptedResiduals]:
            while (sealed := await residuals.get()) is not None:
                yield he.EncryptedResiduals(turn=turn, ciphertexts=sealed.to_bytes())

        return await self._stub.ApplyResiduals(chunks(), timeout=self._step_s)

    async def take_step(self, number: int, step: float) -> float:
        """With conjugate gradients: let the party move along the direction; return its part of r·z.

        Raises:
            RemoteProtocolError: It answered with another turn, or with no such number.
        """
        turn = in_round(self._turn, number)
        reply = await self._stub.TakeStep(he.StepRequest(turn=turn, step=step), timeout=self._call_s)
        if reply.turn != turn or not (math.isfinite(reply.residual) and reply.residual >= 0):
            raise RemoteProtocolError(f"{self.name} did not answer a step with the size of its residual")
        return reply.residual

    async def partial_scores(self, rows: int) -> Floats:
        """Return the party's partial scores of all aligned rows, (rows,).

        Raises:
            RemoteProtocolError: Not one finite number a row.
        """
        request = he.PartialScoresRequest(turn=self._turn)
        parts: list[Floats] = []
        received = 0
        async for chunk in self._stub.SendPartialScores(request, timeout=self._step_s):
            parts.append(np.array(chunk.scores, dtype=np.float64))
            received += len(parts[-1])
            if received > rows:
                break
        scores = np.concatenate(parts) if parts else np.zeros(0)
        if len(scores) != rows or not np.isfinite(scores).all():
            raise RemoteProtocolError(f"{self.name} did not send one finite score for each of {rows} rows")
        return scores
