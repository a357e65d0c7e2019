"""A passive party's side of Gram rounds, call by call: converts, and calls the role."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from typing import TypeVar

from common.crypto.cipher import Cipher, CipherVector, parse_ciphertexts
from common.crypto.paillier import PublicKey
from common.errors import RemoteProtocolError
from common.glm.solvers import BlockSolver
from common.rpc.chunks import chunk_slices
from common.rpc.pb import he_gram_pb2 as gram
from common.rpc.pb import job_pb2 as pb
from common.runtime.gram_messages import direction_messages, held_pairs, products_messages
from common.runtime.kept_shares import keep_share, kept_attempts, kept_share
from common.runtime.linear_solver import gram_tools
from party_a.he_gram import PassiveGram
from party_a.regression_calls import RegressionCalls

M = TypeVar("M")


class GramCalls(RegressionCalls):
    """The state of one job with Gram rounds at one passive party."""

    _gram: PassiveGram | None = None
    _key: PublicKey | None = None
    _products: dict[str, list[gram.MaskedProducts]]
    _most_bytes: int = 0
    _last: gram.DirectionsApplied | None = None

    async def take_role(self, cipher: Cipher, solver: BlockSolver, columns: Mapping[str, int]) -> PassiveGram:
        """Return the role of Gram rounds; tell the coordinator how much it will decrypt for us."""
        rows = self.design.matrix[self.design.train]
        tools = gram_tools(self._job, len(rows), columns, cipher)
        others = {party: count for party, count in columns.items() if party != self._party}
        role = await self.watch.thread(
            "preparing", PassiveGram, rows, solver, tools, others, self._job.active
        )
        products = {
            masker: role.sharing.products_length(masker) for masker in held_pairs(self._job, self._party)
        }
        await self.coordinator.declare_gram(role.round_length, products)
        self._gram, self._key, self._products = role, cipher.key, {}
        most = max(columns.values()) + 1 + role.round_length
        self._most_bytes = most * cipher.key.ciphertext_bytes
        return role

    def sealed_in_round(self) -> int:
        """Return how many ciphertexts a round seals: block, complements, result and loss share."""
        role, _ = self._ready_gram()
        return self.design.columns + role.complements_length + role.round_length + 1

    async def send_packed_rows(self, request: gram.PackedRowsRequest) -> AsyncIterator[gram.PackedRows]:
        """Set-up, as the one who will hold the sum: yield our packed rows for the parties after us."""
        role, key = self._ready_gram()
        if not held_pairs(self._job, self._party):
            raise RemoteProtocolError(f"no party of this job takes the rows of {self._party}")
        row_bytes = key.ciphertext_bytes * role.sharing.row_ciphertexts
        for part in chunk_slices(len(self.design.train), row_bytes):
            sealed = await self.watch.thread("set-up", role.sharing.encrypt_rows, part)
            rows = part.stop - part.start
            yield gram.PackedRows(
                turn=request.turn, holder=self._party, ciphertexts=sealed.to_bytes(), rows=rows
            )

    async def mask_products(
        self, first: gram.PackedRows, more: AsyncIterator[gram.PackedRows]
    ) -> AsyncIterator[gram.MaskedProducts]:
        """Set-up, as the one who masks: take a holder's packed rows, yield the masked products, once."""
        role, _ = self._ready_gram()
        holder = first.holder
        if holder not in (self._job.active, *self._job.passive) or self._party not in held_pairs(
            self._job, holder
        ):
            raise RemoteProtocolError(f"{holder} is not a party whose rows {self._party} takes")
        async with self.applying:
            if holder not in self._products:
                role.sharing.begin_masking(holder)
                await self._absorb_rows(role, first, first)
                async for message in more:
                    await self._absorb_rows(role, message, first)
                sealed = await self.watch.thread("set-up", role.masked_products, holder)
                await self._keep_share(role, holder, first.turn)
                self._products[holder] = products_messages(first.turn, self._party, sealed)
        # A second request gets the very same ciphertexts: other masks on the same products would show them.
        for reply in self._products[holder]:
            yield reply

    async def take_products(
        self, first: gram.MaskedProducts, more: AsyncIterator[gram.MaskedProducts]
    ) -> gram.ProductsTaken:
        """Set-up, as the one who holds the sum: have a later party's masked products decrypted."""
        role, key = self._ready_gram()
        masker, parts, length = first.masker, [], 0
        if masker not in held_pairs(self._job, self._party):
            raise RemoteProtocolError(f"{self._party} holds no products with {masker}")
        async with self.applying:
            if masker in role.unshared:
                async for message in _with_first(first, more):
                    if (message.turn, message.masker) != (first.turn, masker):
                        raise RemoteProtocolError("one stream speaks of two turns or parties")
                    parts.append(parse_ciphertexts(message.ciphertexts, key, None))
                    length += len(parts[-1])
                    if length > role.sharing.products_length(masker):
                        raise RemoteProtocolError("more masked cross products came than were agreed")
                products = CipherVector.joined(key, parts)
                blinded = await self.watch.thread("set-up", role.sharing.blind_products, masker, products)
                residues = await self.coordinator.decrypt_products(masker, blinded)
                await self.watch.thread("set-up", role.take_products, masker, residues)
                await self._keep_share(role, masker, first.turn)
        return gram.ProductsTaken(turn=first.turn)

    async def send_direction(self, request: gram.DirectionRequest) -> AsyncIterator[gram.Direction]:
        """Step 1: yield [[v_A]], and for every other party its complement."""
        role, _ = self._ready_gram()
        self.require_training()
        self.turns.begin(request.turn.round, request.mixing, request.scale)
        if request.turn.round == self._job.train.max_rounds:
            self.finish_noise()
        sent = await self.watch.thread("direction", role.encrypt_direction, request.turn.round)
        for message in direction_messages(request.turn, self._party, sent):
            yield message

    async def apply_directions(
        self, first: gram.Direction, more: AsyncIterator[gram.Direction]
    ) -> gram.DirectionsApplied:
        """Steps 2 and 3: all other parties' directions, mask, have it decrypted, unmask, move."""
        role, key = self._ready_gram()
        async with self.applying:
            if self._last is not None and first.turn.round == self._last.turn.round:
                return self._last
            self.require_training()
            if first.turn.round != role.applied + 1:
                raise RemoteProtocolError(
                    f"directions of round {first.turn.round} came after round {role.applied}"
                )
            await self._absorb_directions(role, key, first, more)
            masked = await self.watch.thread("product", role.masked_product)
            role.apply(await self.coordinator.decrypt_gradient(first.turn.round, masked))
            reply = gram.DirectionsApplied(turn=first.turn, curvature=self.turns.curvature())
            if self._job.decrypts_loss(first.turn.round):
                share = await self.watch.thread("loss", role.loss_share)
                reply.loss_share = share.to_bytes()
            if self._job.train.solver == "gd":
                await self.keep_round()
            self._last = reply
            return reply

    def kept_shares(self) -> dict[str, int]:
        """Return with whom cross products are shared on our disk, and since which attempt."""
        return kept_attempts(self.rounds.checkpoint, (self._job.active, *self._job.passive))

    def restore_shares(self, parties: Collection[str]) -> None:
        """Take shares back from our disk.

        Raises:
            RemoteProtocolError: There is none with one of the parties.
        """
        role, _ = self._ready_gram()
        for party in parties:
            share = kept_share(self.rounds.checkpoint, party) if party in role.unshared else None
            if share is None:
                raise RemoteProtocolError("a share was named that is not kept here, or is there already")
            role.restore_share(party, share)

    async def _keep_share(self, role: PassiveGram, party: str, turn: pb.Turn) -> None:
        """Keep a share before the other end can have its own: one without the other is worth nothing."""
        share = role.share_of(party)
        await asyncio.to_thread(keep_share, self.rounds.checkpoint, party, turn.attempt, share)

    async def _absorb_rows(self, role: PassiveGram, message: gram.PackedRows, first: gram.PackedRows) -> None:
        if (message.turn, message.holder) != (first.turn, first.holder):
            raise RemoteProtocolError("one stream speaks of two turns or parties")
        _, key = self._ready_gram()
        packed = parse_ciphertexts(message.ciphertexts, key, None)
        await self.watch.thread("set-up", role.sharing.absorb_rows, first.holder, packed)

    async def _absorb_directions(
        self, role: PassiveGram, key: PublicKey, first: gram.Direction, more: AsyncIterator[gram.Direction]
    ) -> None:
        blocks: defaultdict[str, bytes] = defaultdict(bytes)
        complements: defaultdict[str, bytes] = defaultdict(bytes)
        async for message in _with_first(first, more):
            if message.turn != first.turn or message.receiver != self._party:
                raise RemoteProtocolError("one stream speaks of two turns or receivers")
            if message.sender not in (self._job.active, *self._job.passive):
                raise RemoteProtocolError(
                    f"a direction came of {message.sender}, which is no party of the job"
                )
            blocks[message.sender] += message.block
            complements[message.sender] += message.complement
            if len(blocks[message.sender]) + len(complements[message.sender]) > self._most_bytes:
                raise RemoteProtocolError("a direction is longer than any party's columns")
        for sender, block in blocks.items():
            vector = parse_ciphertexts(block, key, None)
            complement = parse_ciphertexts(complements[sender], key, None)
            await self.watch.thread("product", role.absorb_direction, sender, vector, complement)

    def _ready_gram(self) -> tuple[PassiveGram, PublicKey]:
        if self._gram is None or self._key is None:
            raise RemoteProtocolError("the job has not been prepared yet, or has no Gram rounds")
        return self._gram, self._key


async def _with_first(first: M, more: AsyncIterator[M]) -> AsyncIterator[M]:
    yield first
    async for message in more:
        yield message
