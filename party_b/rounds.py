"""The rounds of encrypted linear regression between services: moves what the roles make, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager

from common.crypto.cipher import Cipher, CipherVector, parse_ciphertexts
from common.errors import RemoteProtocolError
from common.rpc.pb import he_linear_pb2 as he
from common.runtime.config_job import JobConfig
from common.runtime.coordinator_client import CoordinatorClient
from common.runtime.noise_ahead import NoiseAhead
from common.runtime.stopwatch import Stopwatch
from party_b.he_linear import ActiveRegression
from party_b.passive_client import PassiveClient, Residuals

# Chunks of residuals that may wait for a passive party: one travels while the next one is computed.
_CHUNKS_AHEAD = 2


class Rounds:
    """Conducts one round after another between the active role and its peers."""

    def __init__(
        self,
        job: JobConfig,
        role: ActiveRegression,
        cipher: Cipher,
        passive: Sequence[PassiveClient],
        coordinator: CoordinatorClient,
        watch: Stopwatch,
    ) -> None:
        self._job = job
        self._role = role
        self._cipher = cipher
        self._passive = passive
        self._coordinator = coordinator
        self._watch = watch

    @contextmanager
    def noise_ahead(self, executor: Executor, rows: int) -> Iterator[None]:
        """Prepare the noise of rounds to come while this party waits; for rounds of so many rows."""
        # In a round: a residual a row, the loss, and the gradient.
        ahead = NoiseAhead(self._cipher, executor, rows + 1 + len(self._role.weights))
        try:
            yield
        finally:
            ahead.finish()

    async def run(self, number: int) -> float | None:
        """Conduct a round; return its loss in mean form, None if the job does not ask for it."""
        rows = await self._watch.thread("scores", self._role.begin, number)
        residuals: list[Residuals] = [asyncio.Queue(_CHUNKS_AHEAD) for _ in self._passive]
        try:
            async with asyncio.TaskGroup() as group:
                applying = [
                    group.create_task(client.apply_residuals(number, queue))
                    for client, queue in zip(self._passive, residuals, strict=True)
                ]
                shares = await self._exchange(number, residuals)
                masked = await self._watch.thread("gradient", self._role.masked_gradient)
                gradient = await self._coordinator.decrypt_gradient(number, masked)
        except BaseExceptionGroup as failures:
            # A failure at one party breaks off the calls to the others; what came first is the cause.
            raise _first(failures) from failures
        loss = None
        if self._job.train.has_loss(number):
            if len(self._passive) > 1:
                shares = [task.result().loss_share for task in applying]
            loss = await self._loss(number, shares) / rows
        self._role.apply(gradient)
        return loss

    async def _exchange(self, number: int, residuals: Sequence[Residuals]) -> list[bytes]:
        """Steps 1 and 2: turn [[u_A]] into [[d]], chunk by chunk; return the loss shares that came along."""
        streams = [client.encrypt_scores(number) for client in self._passive]
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


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
