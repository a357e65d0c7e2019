"""A passive party's part of entity alignment as the active party calls it (protos/vfl/v1/align.proto)."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from common.crypto.psi import MAX_IDS, Points, parse_points
from common.crypto.psi_curve import POINT_BYTES
from common.data.id_profile import CLASSES, IdProfile
from common.errors import RemoteProtocolError
from common.rpc.channels import Deadline
from common.rpc.chunks import chunk_slices
from common.rpc.pb import align_pb2 as pb
from common.rpc.pb.job_pb2 import Turn
from common.types import Ints

if TYPE_CHECKING:
    from common.rpc.pb.passive_party_pb2_grpc import PassivePartyAsyncStub

# Is told how many ids of a set the party has multiplied so far.
Reached = Callable[[int], None]

_POSITION_BYTES = 5  # of a position in a message: a varint of up to 32 bits
_LONGEST_ID = 2**31


class AlignmentClient:
    """One method a call of entity alignment, on the connection of a PassiveClient."""

    def __init__(self, name: str, stub: PassivePartyAsyncStub, turn: Turn, step_s: Deadline) -> None:
        self._name = name
        self._stub = stub
        self._turn = turn
        self._step_s = step_s

    async def blind_own(self, count: int, reached: Reached) -> Points:
        """Return the party's own set, as large as it said when it opened the job."""
        request = pb.BlindOwnIdsRequest(turn=self._turn)
        replies = self._stub.BlindOwnIds(request, timeout=self._step_s)
        return await self._collected(replies, self._name, count, reached)

    async def blind(self, owner: str, points: Points, reached: Reached) -> Points:
        """Return another party's set after this one has multiplied and sorted it."""

        def chunks() -> Iterator[pb.BlindedIds]:
            for part in chunk_slices(len(points), POINT_BYTES):
                content = points[part].tobytes()
                yield pb.BlindedIds(turn=self._turn, owner=owner, points=content, total=len(points))

        replies = self._stub.BlindIds(chunks(), timeout=self._step_s)
        return await self._collected(replies, owner, len(points), reached)

    async def reveal(self, owner: str, positions: Ints) -> Ints:
        """Return where common points of a set stood before this party sorted it."""

        def chunks() -> Iterator[pb.CommonPositions]:
            for part in chunk_slices(len(positions), _POSITION_BYTES):
                yield pb.CommonPositions(turn=self._turn, owner=owner, positions=positions[part].tolist())

        parts: list[Ints] = []
        received = 0
        async for chunk in self._stub.RevealCommon(chunks(), timeout=self._step_s):
            self._require(chunk.turn == self._turn and chunk.owner == owner)
            parts.append(np.array(chunk.positions, dtype=np.int64))
            received += len(parts[-1])
            self._require(received <= len(positions))
        self._require(received == len(positions))
        before = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        self._require(len(np.unique(before)) == len(before))
        return before

    async def set_common(self, alignment_id: bytes, positions: Ints) -> None:
        """Tell the party which of its rows are common; it keeps them under the alignment's id."""

        def chunks() -> Iterator[pb.CommonRows]:
            for part in chunk_slices(len(positions), _POSITION_BYTES):
                content = positions[part].tolist()
                yield pb.CommonRows(turn=self._turn, alignment_id=alignment_id, positions=content)

        reply = await self._stub.SetCommonRows(chunks(), timeout=self._step_s)
        self._require(reply.rows == len(positions))

    async def describe(self) -> IdProfile | None:
        """Return what the party's ids without a partner look like; None where it has too few to say.

        Before the common ids are known at the party, or where they are too few, it describes all of them.
        """
        reply = await self._stub.DescribeIds(pb.DescribeIdsRequest(turn=self._turn), timeout=self._step_s)
        percent = dict(reply.percent)
        # The words go to our user's terminal, so they must be ours.
        self._require(percent.keys() <= CLASSES and all(share <= 100 for share in percent.values()))
        self._require(reply.shortest <= reply.usual <= reply.longest < _LONGEST_ID)
        if not reply.count:
            return None
        return IdProfile(
            reply.count, reply.shortest, reply.longest, reply.usual, reply.same_beginning, percent
        )

    async def _collected(
        self, replies: AsyncIterable[pb.BlindedIds], owner: str, count: int, reached: Reached
    ) -> Points:
        self._require(count <= MAX_IDS)
        data = bytearray()
        async for chunk in replies:
            self._require((chunk.turn, chunk.owner, chunk.total) == (self._turn, owner, count))
            self._require(chunk.done <= count)
            reached(chunk.done)
            data += chunk.points
            self._require(len(data) <= count * POINT_BYTES)
        self._require(len(data) == count * POINT_BYTES)
        return parse_points(data)

    def _require(self, holds: bool) -> None:
        if not holds:
            raise RemoteProtocolError(f"{self._name} sent something else than what aligns the ids")
