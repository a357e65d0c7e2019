"""Gram rounds between services: the set-up of every pair, then the rounds; moves what the roles make."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

from common.crypto.cipher import CipherVector, parse_ciphertexts
from common.crypto.gram_round import EncryptedDirection
from common.crypto.paillier import PublicKey
from common.errors import RemoteProtocolError
from common.glm.conjugate import Turn
from common.glm.solvers import SolverState
from common.rpc.chunks import chunk_slices
from common.rpc.pb import he_gram_pb2 as gram
from common.rpc.pb import he_linear_pb2 as he
from common.runtime.checkpoint import Checkpoint
from common.runtime.config.job import JobConfig
from common.runtime.coordinator_client import in_round
from common.runtime.gram_messages import addressed_messages, held_pairs
from common.runtime.kept_shares import keep_share, kept_attempts, kept_share
from common.runtime.stopwatch import Stopwatch
from party_b.he_gram import ActiveGram
from party_b.regression.gram_client import ReceivedDirection
from party_b.regression.rounds import GoAhead, Peers, RoundResult, Tell, first_failure, known

# How often the set-up of a pair says how far it is.
_NEWS_EVERY_S = 2.0


class GramRounds:
    """Conducts the set-up, and one round after another, between the active role and its peers."""

    def __init__(
        self,
        job: JobConfig,
        role: ActiveGram,
        key: PublicKey,
        peers: Peers,
        watch: Stopwatch,
        checkpoint: Checkpoint,
    ) -> None:
        self._job = job
        self._role = role
        self._key = key
        # No party's block, and all of its complements, is longer than all columns together.
        most_bytes = role.columns * len(job.members) * key.ciphertext_bytes
        self._passive = {client.name: client.in_gram_rounds(most_bytes) for client in peers.passive}
        self._coordinator = peers.coordinator
        self._turn = peers.turn
        self._watch = watch
        self._checkpoint = checkpoint
        self._kept: frozenset[tuple[str, str]] = frozenset()

    @property
    def sealed_in_round(self) -> int:
        """How many ciphertexts this party seals in a round: block, complements, result, and loss."""
        role = self._role
        return len(role.weights) + 1 + role.complements_length + role.round_length + 1

    async def share(self, tell: Tell) -> None:
        """Share the cross products of every pair; with many rows this is what takes time."""
        masked_by = held_pairs(self._job, self._job.active)
        lengths = {masker: self._role.sharing.products_length(masker) for masker in masked_by}
        await self._coordinator.declare_gram(self._role.round_length, lengths)
        for masker in masked_by:
            if (self._job.active, masker) not in self._kept:
                await self._take_products(masker, tell)
        for holder in self._job.passive:
            for masker in held_pairs(self._job, holder):
                if (holder, masker) in self._kept:
                    continue
                await tell(f"sharing cross products of {holder} and {masker}", 0.0)
                rows = self._passive[holder].packed_rows()
                await self._passive[holder].take_products(self._passive[masker].masked_products(rows))

    def go_on(self, number: int, state: SolverState) -> None:
        """Continue after a round, with the solver as it was then."""
        self._role.go_on(number, state)

    def recall_shares(self, standings: Mapping[str, he.Standing]) -> Mapping[str, Sequence[str]]:
        """Find the pairs whose two ends have kept shares of the same set-up, and take our own back."""
        own = kept_attempts(self._checkpoint, self._job.passive)
        kept = {name: dict(standing.shares) for name, standing in standings.items()} | {self._job.active: own}
        self._kept = frozenset(
            (holder, masker)
            for holder in (self._job.active, *self._job.passive)
            for masker in held_pairs(self._job, holder)
            if masker in kept[holder] and kept[holder][masker] == kept[masker].get(holder)
        )
        partners = {
            name: [one for pair in self._kept if name in pair for one in pair if one != name] for name in kept
        }
        for party in partners.pop(self._job.active):
            share = kept_share(self._checkpoint, party)
            if share is not None:
                self._role.restore_share(party, share)
        return partners

    async def run(self, number: int, turned: Turn, go_ahead: GoAhead) -> RoundResult | None:
        """Conduct a round; what the others send is asked for while the round before is being settled."""
        try:
            async with asyncio.TaskGroup() as group:
                asked = {
                    name: group.create_task(client.direction(number, turned))
                    for name, client in self._passive.items()
                }
                own = await self._watch.thread("direction", self._role.encrypt_direction, number)
                goes_on = await go_ahead
            if not goes_on:
                return None
            received = {name: task.result() for name, task in asked.items()}
            async with asyncio.TaskGroup() as group:
                applying = [
                    group.create_task(client.apply(self._for(name, number, own, received)))
                    for name, client in self._passive.items()
                ]
                await self._watch.thread("product", self._absorb, received)
                masked = await self._watch.thread("product", self._role.masked_product)
                residues = await self._coordinator.decrypt_gradient(number, masked)
        except BaseExceptionGroup as failures:
            raise first_failure(failures) from failures
        self._role.apply(residues)
        applied = [task.result() for task in applying]
        loss = known(None)
        if self._job.decrypts_loss(number):
            loss = partial(self._loss, number, [reply.loss_share for reply in applied])
        return RoundResult(loss, sum(reply.curvature.value for reply in applied))

    async def _take_products(self, masker: str, tell: Tell) -> None:
        role, parts, length = self._role, [], 0
        async for chunk in self._passive[masker].masked_products(self._own_rows(masker, tell)):
            parts.append(parse_ciphertexts(chunk.ciphertexts, self._key, None))
            length += len(parts[-1])
            if length > role.sharing.products_length(masker):
                raise RemoteProtocolError(f"{masker} sent more cross products than were agreed")
        products = CipherVector.joined(self._key, parts)
        blinded = await self._watch.thread("set-up", role.sharing.blind_products, masker, products)
        residues = await self._coordinator.decrypt_products(masker, blinded)
        await self._watch.thread("set-up", role.take_products, masker, residues)
        attempt = self._turn.attempt
        await asyncio.to_thread(keep_share, self._checkpoint, masker, attempt, role.share_of(masker))

    async def _own_rows(self, masker: str, tell: Tell) -> AsyncIterator[gram.PackedRows]:
        sharing, rows = self._role.sharing, self._role.rows
        begun_s, told_s = time.monotonic(), -math.inf
        for part in chunk_slices(rows, self._key.ciphertext_bytes * sharing.row_ciphertexts):
            now_s = time.monotonic()
            if now_s >= told_s + _NEWS_EVERY_S:
                eta_s = (now_s - begun_s) * (rows - part.start) / max(1, part.start)
                news = f"sharing cross products with {masker}: {part.start:,} of {rows:,} rows"
                told_s = now_s
                await tell(news, eta_s)
            sealed = await self._watch.thread("set-up", sharing.encrypt_rows, part)
            yield gram.PackedRows(
                turn=self._turn,
                holder=self._job.active,
                ciphertexts=sealed.to_bytes(),
                rows=part.stop - part.start,
            )

    async def _for(
        self, receiver: str, number: int, own: EncryptedDirection, received: Mapping[str, ReceivedDirection]
    ) -> AsyncIterator[gram.Direction]:
        """Yield for one passive party the directions of all others."""
        turn = in_round(self._turn, number)
        sent = {self._job.active: _as_received(own)} | dict(received)
        for sender, direction in sent.items():
            if sender != receiver:
                complement = direction.complements.get(receiver, b"")
                for message in addressed_messages(turn, sender, receiver, direction.block, complement):
                    yield message

    def _absorb(self, received: Mapping[str, ReceivedDirection]) -> None:
        for name, direction in received.items():
            block = parse_ciphertexts(direction.block, self._key, None)
            complement = parse_ciphertexts(direction.complements.get(self._job.active, b""), self._key, None)
            self._role.absorb_direction(name, block, complement)

    async def _loss(self, number: int, shares: Sequence[bytes]) -> float:
        parsed = [parse_ciphertexts(share, self._key, 1) for share in shares]
        sealed = await self._watch.thread("loss", self._role.encrypted_loss, parsed)
        residue = await self._coordinator.decrypt_loss(number, sealed)
        return self._role.decode_loss(residue) / self._role.rows


def _as_received(own: EncryptedDirection) -> ReceivedDirection:
    complements = {receiver: sealed.to_bytes() for receiver, sealed in own.complements.items()}
    return ReceivedDirection(own.block.to_bytes(), complements)
