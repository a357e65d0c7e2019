"""A passive party in Gram rounds as the active party sees it (protos/vfl/v1/he_gram.proto)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.errors import RemoteProtocolError
from common.glm.conjugate import Turn
from common.rpc.channels import Deadline
from common.rpc.pb import he_gram_pb2 as gram
from common.rpc.pb import job_pb2 as pb
from common.runtime.coordinator_client import in_round

if TYPE_CHECKING:
    # A class of the type stubs alone: at run time a stub is the same for both kinds of channels.
    from common.rpc.pb.passive_party_pb2_grpc import PassivePartyAsyncStub


@dataclass(frozen=True, slots=True)
class ReceivedDirection:
    """What a passive party sent in a round, as bytes: its block, and for every other party its complement."""

    block: bytes
    complements: dict[str, bytes]


class GramClient:
    """The calls of Gram rounds to one passive party in one job."""

    def __init__(
        self, name: str, stub: PassivePartyAsyncStub, turn: pb.Turn, step_s: Deadline, most_bytes: int
    ) -> None:
        """Speak over an open connection.

        Args:
            name: The party.
            stub: On the connection.
            turn: Of the job, outside rounds.
            step_s: Deadline of a step.
            most_bytes: More than this no party sends in a round.
        """
        self.name = name
        self._stub = stub
        self._turn = turn
        self._step_s = step_s
        self._most_bytes = most_bytes

    async def packed_rows(self) -> AsyncIterator[gram.PackedRows]:
        """Set-up: yield the party's packed rows, for the parties after it."""
        request = gram.PackedRowsRequest(turn=self._turn)
        async for chunk in self._stub.SendPackedRows(request, timeout=self._step_s):
            if chunk.turn != self._turn or chunk.holder != self.name:
                raise RemoteProtocolError(f"{self.name} sent rows of another turn or party")
            yield chunk

    async def masked_products(
        self, rows: AsyncIterator[gram.PackedRows]
    ) -> AsyncIterator[gram.MaskedProducts]:
        """Set-up: let the party multiply packed rows with its columns; yield the products under its masks."""
        async for chunk in self._stub.MaskProducts(rows, timeout=self._step_s):
            if chunk.turn != self._turn or chunk.masker != self.name:
                raise RemoteProtocolError(f"{self.name} sent products of another turn or party")
            yield chunk

    async def take_products(self, products: AsyncIterator[gram.MaskedProducts]) -> None:
        """Set-up: hand another party's masked products to the party that holds the sum."""
        await self._stub.TakeProducts(products, timeout=self._step_s)

    async def direction(self, number: int, turned: Turn) -> ReceivedDirection:
        """Step 1: return what the party sends in a round."""
        turn = in_round(self._turn, number)
        request = gram.DirectionRequest(turn=turn, mixing=turned.mixing, scale=turned.scale)
        block, complements, received = b"", defaultdict[str, bytes](bytes), 0
        async for chunk in self._stub.SendDirection(request, timeout=self._step_s):
            if chunk.turn != turn or chunk.sender != self.name:
                raise RemoteProtocolError(f"{self.name} sent a direction of another turn or party")
            received += len(chunk.block) + len(chunk.complement)
            if received > self._most_bytes:
                raise RemoteProtocolError(f"{self.name} sent a direction longer than the parties' columns")
            block += chunk.block
            if chunk.complement:
                complements[chunk.receiver] += chunk.complement
        return ReceivedDirection(block, dict(complements))

    async def apply(self, directions: AsyncIterator[gram.Direction]) -> gram.DirectionsApplied:
        """Steps 2 and 3: send all other parties' directions; return when the party's solver has moved."""
        return await self._stub.ApplyDirections(directions, timeout=self._step_s)
