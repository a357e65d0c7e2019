"""A passive party as the active party sees it: one method a call of protos/vfl/v1/passive_party.proto."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

import numpy as np

from common.crypto.cipher import SealedVector
from common.data.ids import rule_differences
from common.errors import DataError, RemoteProtocolError
from common.glm.conjugate import Turn
from common.rpc.channels import Deadline, open_channel
from common.rpc.greeting import check_greeting, make_greeting
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb.passive_party_pb2_grpc import PassivePartyStub
from common.rpc.presence import attend
from common.rpc.wiretap import Wiretap
from common.runtime.config_job import JobConfig
from common.runtime.config_party import PartyConfig
from common.runtime.coordinator_client import in_round, peer_address
from common.types import Floats
from party_b.alignment_client import AlignmentClient
from party_b.gram_client import GramClient

# The end of the round's residuals on their way to one passive party.
Residuals = asyncio.Queue[SealedVector | None]


class PassiveClient:
    """The active party's connection to one passive party in one job."""

    def __init__(self, name: str, own: PartyConfig, job: JobConfig, turn: pb.Turn, wiretap: Wiretap) -> None:
        self.name = name
        self.address = peer_address(own, name)
        self._own = own
        self._job = job
        self._turn = turn
        self._call_s = Deadline(own.deadlines.call_s, "deadlines.call_s")
        self._step_s = Deadline(own.deadlines.step_s, "deadlines.step_s")
        self._channel = open_channel(name, self.address, own.party, own.security, wiretap)
        self._stub = PassivePartyStub(self._channel)
        self.alignment = AlignmentClient(name, self._stub, turn, self._step_s)

    async def open_job(self, rule: str, alignment_id: bytes) -> pb.OpenJobReply:
        """Open the job, and make sure that both sides make ids by the same rule.

        Args:
            rule: The active party's rule for ids.
            alignment_id: Of an earlier alignment that may serve again; empty without one.

        Raises:
            PeerRefused: The party does not agree; says why.
            DataError: The rules differ.
        """
        request = pb.OpenJobRequest(
            turn=self._turn,
            greeting=make_greeting(self._own.party, self._own.role),
            expected_role="passive",
            job_json=self._job.canonical_json(),
            alignment_id=alignment_id,
        )
        # The other side reads its file meanwhile, and opens the job at the coordinator.
        reply = await self._stub.OpenJob(request, timeout=self._step_s)
        check_greeting(reply.greeting, self.name, "passive", self.address)
        if reply.rows < 1:
            raise RemoteProtocolError(f"{self.name} opened the job without its number of rows")
        self._check_rule(rule, reply.id_rule)
        return reply

    async def attend(self) -> None:
        """Be present until cancelled; raises when the party is gone or ends the job."""
        await attend(
            self._stub.Attend,
            self._turn,
            peer=self.name,
            address=self.address,
            peer_s=self._own.deadlines.peer_s,
        )

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

    async def close_job(self, request: pb.CloseJobRequest) -> pb.CloseJobReply:
        """End the job at the party, which keeps its part of the model if the job finished."""
        return await self._stub.CloseJob(request, timeout=self._call_s)

    async def disconnect(self) -> None:
        """Close the connection; what is still running on it ends."""
        await self._channel.close()

    def _check_rule(self, rule: str, theirs: str) -> None:
        """Compare how both sides make ids; under different rules equal ids may never meet."""
        differences = rule_differences(rule, theirs)
        if differences:
            raise DataError(
                f"{self.name} and {self._own.party} make ids by different rules: {'; '.join(differences)}",
                where=f"data set {self._job.data.dataset}: here {self._own.party}, there {self.name}",
                advice=f"Declare the same under datasets.{self._job.data.dataset}.id at both parties.",
            )
