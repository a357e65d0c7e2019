"""A passive party and the key holder, and an active party that the test drives by hand."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.crypto.cipher import CipherVector, PaillierCipher, SealedVector, parse_ciphertexts
from common.crypto.entropy import SystemEntropy
from common.crypto.paillier import PublicKey
from common.rpc.channels import Deadline
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb.job_pb2 import Turn
from common.runtime.compute import InProcessExecutor
from common.runtime.config.job import JobConfig
from common.runtime.stopwatch import Stopwatch
from party_b.alignment import AlignmentConductor, Alike
from party_b.alignment_client import AlignmentClient
from tests.attacks.world import CALL_S, World, opening, turn_of


@dataclass
class ByHand:
    """Party B as somebody with its certificate may misuse it; speaks with party_a and the coordinator."""

    a: Any
    c: Any
    job: JobConfig
    columns: dict[str, int]
    rows: int = 0
    cipher: PaillierCipher | None = None
    attempt: int = 0
    alignment_id: bytes = b""

    def turn(self, number: int = 0) -> Turn:
        """Return a round's turn in the current attempt."""
        return turn_of(self.job, number, attempt=self.attempt)

    async def open(self) -> None:
        """Open the job at both, as the protocol says."""
        for receiver, stub in (("party_a", self.a), ("coordinator", self.c)):
            request = opening(self.job, "party_b", receiver, columns=self.columns["party_b"])
            request.turn.CopyFrom(self.turn())
            request.alignment_id = self.alignment_id
            reply = await stub.OpenJob(request, timeout=CALL_S)
            self.rows = reply.rows or self.rows

    async def open_again(self) -> None:
        """Open the job in the next attempt, on the same alignment, and prepare it."""
        self.attempt += 1
        await self.open()
        await self.prepare(self.rows)

    async def go_on(self, number: int) -> None:
        """Let A go on after a round."""
        await self.a.GoOn(he.GoOnRequest(turn=self.turn(number)), timeout=CALL_S)

    async def align(self, known: int | None = None) -> None:
        """Align with A on all of its ids, or the first ones that are known, and let it build its design."""
        known = self.rows if known is None else known
        if self.alignment_id:
            await self._design(known)
            return
        ids = tuple(f"r{at:04d}" for at in range(known))
        client = AlignmentClient("party_a", self.a, self.turn(), Deadline(CALL_S, "CALL_S"))
        alike = Alike("party_b", ids, {"party_a": self.rows, "party_b": known}, 1)
        conductor = AlignmentConductor(alike, {"party_a": client}, InProcessExecutor(), Stopwatch(), _unheard)
        self.alignment_id = (await conductor.run()).alignment.alignment_id
        await self._design(known)

    async def _design(self, rows: int) -> None:
        request = he.BuildDesignRequest(turn=self.turn(), alignment_id=self.alignment_id, rows=rows)
        await self.a.BuildDesign(request, timeout=CALL_S)

    async def prepare(self, rows: int) -> None:
        """Align, let A prove its plan, and fetch the key."""
        await self.align()
        request = he.PrepareRequest(
            turn=self.turn(), train_rows=rows, columns=self.columns, learning_rate=0.1
        )
        await self.a.Prepare(request, timeout=CALL_S)
        reply = await self.c.GetPublicKey(he.PublicKeyRequest(turn=self.turn()), timeout=CALL_S)
        key = PublicKey.from_bytes(reply.modulus, reply.noise_generator)
        self.cipher = PaillierCipher(key, InProcessExecutor(), SystemEntropy())

    async def scores(self, number: int) -> CipherVector:
        """Step 1: fetch [[u_A]] of a round."""
        assert self.cipher is not None
        key, parts = self.cipher.key, []
        request = he.ScoresRequest(turn=self.turn(number))
        async for chunk in self.a.EncryptScores(request, timeout=CALL_S):
            parts.append(parse_ciphertexts(chunk.ciphertexts, key, None))
        return CipherVector.joined(key, parts)

    async def send_residuals(self, number: int, residuals: SealedVector) -> he.RoundApplied:
        """Step 2: send [[d]] of a round; A has updated its weights when this returns."""
        message = he.EncryptedResiduals(turn=self.turn(number), ciphertexts=residuals.to_bytes())
        applied: he.RoundApplied = await self.a.ApplyResiduals(iter([message]), timeout=CALL_S)
        return applied

    async def round(self, number: int) -> None:
        """Conduct a whole round with residuals of 1."""
        assert self.cipher is not None
        scores = await self.scores(number)
        await self.send_residuals(number, self.cipher.seal(scores, [1 << 32] * len(scores)))

    async def partial_scores(self) -> np.ndarray:
        """Ask for u_A in the clear."""
        scores: list[float] = []
        async for chunk in self.a.SendPartialScores(
            he.PartialScoresRequest(turn=self.turn()), timeout=CALL_S
        ):
            scores += chunk.scores
        return np.array(scores)


async def _unheard(message: str, eta_s: float) -> None:
    """Nobody watches."""


@contextlib.asynccontextmanager
async def by_hand(world: World, job: JobConfig, columns: tuple[int, int]) -> AsyncIterator[ByHand]:
    """Start the coordinator and party_a, whose table is written already, and dial both as party_b."""
    declared = dict(zip(("party_a", "party_b"), columns, strict=True))
    async with (
        world.running("coordinator", "party_a"),
        world.dialled("party_a", "party_b") as a,
        world.dialled("coordinator", "party_b") as c,
    ):
        yield ByHand(a, c, job, declared)
