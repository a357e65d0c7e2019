"""Row-wise rounds between services: moves what the roles make, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from common.crypto.cipher import Cipher, CipherVector, parse_ciphertexts
from common.errors import RemoteProtocolError
from common.glm.conjugate import Turn
from common.glm.solvers import SolverState
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.runtime.config.job import JobConfig
from common.runtime.coordinator_client import CoordinatorClient
from common.runtime.stopwatch import Stopwatch
from party_b.he_linear import ActiveRegression
from party_b.regression.passive_client import PassiveClient, Residuals

# Chunks of residuals that may wait for a passive party: one travels while the next one is computed.
_CHUNKS_AHEAD = 2


# What an attempt may wait for before it goes on: False ends the training.
GoAhead = Awaitable[bool]

# Takes a sentence for whoever follows the job, and the seconds that what it speaks of will still take.
Tell = Callable[[str, float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Peers:
    """Whom the active party speaks with in a job.

    Attributes:
        turn: Of the job, outside rounds.
    """

    passive: Sequence[PassiveClient]
    coordinator: CoordinatorClient
    turn: pb.Turn


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a round leaves beside the solvers' state.

    Attributes:
        loss: Has the loss decrypted, in mean form; gives None if nobody may.
        curvature: The passive parties' parts of p·q, added up; 0 with gradient descent.
    """

    loss: Callable[[], Awaitable[float | None]]
    curvature: float


class Rounds(Protocol):
    """Conducts one round after another between the active role and its peers."""

    @property
    def sealed_in_round(self) -> int:
        """How many ciphertexts this party seals in a round."""
        ...

    async def share(self, tell: Tell) -> None:
        """Do what has to be done once, before the first round; tell how far it is."""
        ...

    async def run(self, number: int, turned: Turn, go_ahead: GoAhead) -> RoundResult | None:
        """Conduct a round; `turned` belongs to the passive parties' direction.

        Nothing of ours is sent before the round before is settled: kept on the disk, and not the last one.
        None says that it was.
        """
        ...

    def go_on(self, number: int, state: SolverState) -> None:
        """Continue after a round, with the solver as it was then."""
        ...

    def recall_shares(self, standings: Mapping[str, he.Standing]) -> Mapping[str, Sequence[str]]:
        """Take our own shares back from the disk where the other end has kept its own of the same pair.

        Args:
            standings: Of the passive parties.

        Returns:
            For each passive party, with whom its own kept shares count.
        """
        ...


class RowwiseRounds:
    """Rounds that work on rows."""

    def __init__(
        self,
        job: JobConfig,
        role: ActiveRegression,
        cipher: Cipher,
        peers: Peers,
        watch: Stopwatch,
    ) -> None:
        self._job = job
        self._role = role
        self._cipher = cipher
        self._passive = peers.passive
        self._coordinator = peers.coordinator
        self._watch = watch

    @property
    def sealed_in_round(self) -> int:
        """How many ciphertexts this party seals in a round: a residual a row, the loss, and the gradient."""
        return self._role.batch_rows + 1 + self._role.gradient_length

    async def share(self, tell: Tell) -> None:
        """Do nothing: row-wise rounds need no set-up."""

    def go_on(self, number: int, state: SolverState) -> None:
        """Continue after a round, with the solver as it was then."""
        self._role.go_on(number, state)

    def recall_shares(self, standings: Mapping[str, he.Standing]) -> Mapping[str, Sequence[str]]:
        """Return nothing: row-wise rounds share nothing."""
        return dict.fromkeys(standings, ())

    async def run(self, number: int, turned: Turn, go_ahead: GoAhead) -> RoundResult | None:
        """Conduct a round."""
        if not await go_ahead:
            return None
        rows = await self._watch.thread("scores", self._role.begin, number)
        early: asyncio.Task[float] | None = None
        residuals: list[Residuals] = [asyncio.Queue(_CHUNKS_AHEAD) for _ in self._passive]
        try:
            async with asyncio.TaskGroup() as group:
                applying = [
                    group.create_task(client.apply_residuals(number, queue))
                    for client, queue in zip(self._passive, residuals, strict=True)
                ]
                shares = await self._exchange(number, turned, residuals)
                masked = await self._watch.thread("gradient", self._role.masked_gradient)
                if self._job.decrypts_loss(number) and len(self._passive) == 1:
                    early = group.create_task(self._loss(number, shares))
                gradient = await self._coordinator.decrypt_gradient(number, masked)
        except BaseExceptionGroup as failures:
            # A failure at one party breaks off the calls to the others; what came first is the cause.
            raise first_failure(failures) from failures
        applied = [task.result() for task in applying]
        loss = None
        if early is not None:
            loss = early.result() / rows
        elif self._job.decrypts_loss(number):
            # Several passive parties share the loss out by their gradients, which have just come back.
            loss = await self._loss(number, [reply.loss_share for reply in applied]) / rows
        self._role.apply(gradient)
        return RoundResult(known(loss), sum(reply.curvature.value for reply in applied))

    async def _exchange(self, number: int, turned: Turn, residuals: Sequence[Residuals]) -> list[bytes]:
        """Steps 1 and 2: turn [[v_A]] into [[d]], chunk by chunk; return the loss shares that came along."""
        streams = [client.encrypt_scores(number, turned) for client in self._passive]
        shares: list[bytes] = []
        while chunks := await _next_of_each(streams):
            scores = [self._parsed(chunk) for chunk in chunks]
            sealed = await self._watch.thread("residuals", self._role.add_residuals, scores)
            for queue in residuals:
                await queue.put(sealed)
            shares = [chunk.loss_share for chunk in chunks]
        for queue in residuals:
            await queue.put(None)
        return shares

    async def _loss(self, number: int, shares: Sequence[bytes]) -> float:
        parsed = [parse_ciphertexts(share, self._cipher.key, 1) for share in shares]
        sealed = await self._watch.thread("loss", self._role.encrypted_loss, parsed)
        return self._role.decode_loss(await self._coordinator.decrypt_loss(number, sealed))

    def _parsed(self, chunk: he.EncryptedScores) -> CipherVector:
        return parse_ciphertexts(chunk.ciphertexts, self._cipher.key, None)


async def _next_of_each(streams: Sequence[AsyncIterator[he.EncryptedScores]]) -> list[he.EncryptedScores]:
    """Return the next chunk of every party's stream; an empty list when all have ended."""
    chunks = [chunk for stream in streams if (chunk := await anext(stream, None)) is not None]
    if chunks and len(chunks) != len(streams):
        raise RemoteProtocolError("one passive party's scores ended before another's")
    return chunks


def known(loss: float | None) -> Callable[[], Awaitable[float | None]]:
    """Return how to ask for a loss that is known already."""

    async def same() -> float | None:
        return loss

    return same


def first_failure(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the failure that broke off all others."""
    first = failures.exceptions[0]
    return first_failure(first) if isinstance(first, BaseExceptionGroup) else first
