"""Entity alignment at a party that does not conduct it, call by call: converts, and calls the role."""

from __future__ import annotations

import asyncio
from array import array
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from common.crypto.entropy import SystemEntropy
from common.crypto.psi import Points, Progress, parse_points
from common.crypto.psi_curve import POINT_BYTES, SecretScalar
from common.data.id_profile import LEAST_DESCRIBED, IdProfile
from common.data.ids import ids_without_partner
from common.errors import RemoteProtocolError
from common.rpc.chunks import chunk_slices
from common.rpc.pb import align_pb2 as pb
from common.rpc.pb.job_pb2 import Turn
from common.runtime.alignment_cache import ALIGNMENT_ID_BYTES, Alignment, AlignmentCache, AlignmentKey
from common.runtime.guest.align import PassiveAlignment, check_count
from common.runtime.stopwatch import Stopwatch
from common.runtime.tally import Tally
from common.types import Ints

P = TypeVar("P", pb.CommonPositions, pb.CommonRows)

# So often the caller is told how far a set has come; it also shows a proxy that the call is alive.
_REPORT_EVERY_S = 1.0

_POSITION_BYTES = 5  # of a position in a message: a varint of up to 32 bits


@dataclass(frozen=True, slots=True)
class OwnIds:
    """What the alignment of one job is about at this party.

    Attributes:
        party: This party.
        others: Whose sets may come here.
        ids: In file order; may be seen by this party alone.
        key: Under which the alignment is kept.
        least_common: With fewer common ids nobody learns which they are.
    """

    party: str
    others: Collection[str]
    ids: tuple[str, ...]
    key: AlignmentKey
    least_common: int


class AlignmentCalls:
    """The alignment of one job at one guest."""

    def __init__(self, own: OwnIds, cache: AlignmentCache, executor: Executor) -> None:
        self._own = own
        self._cache = cache
        self._executor = executor
        self._role: PassiveAlignment | None = None
        self._alignment: Alignment | None = None
        self._pinned: AlignmentCache | None = None
        self._taking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.watch = Stopwatch()

    def pin_in(self, folder: Path) -> None:
        """Keep the job's alignment among what the job needs to go on, too: the next job's may replace it."""
        self._pinned = AlignmentCache(folder)

    async def kept(self, alignment_id: bytes) -> bool:
        """Tell whether an earlier alignment is still here, for the ids as they are now."""
        if self._alignment is None and alignment_id:
            found = await asyncio.to_thread(self._find, alignment_id)
            if found and found.alignment_id == alignment_id and len(found.rows) >= self._own.least_common:
                self._alignment = found
        return bool(alignment_id) and self._is_current(alignment_id)

    def rows(self, alignment_id: bytes, count: int) -> Ints:
        """Return the own rows of the alignment that the job uses.

        Raises:
            RemoteProtocolError: There is none under this id, or it has another number of rows there.
        """
        if self._alignment is None or not self._is_current(alignment_id):
            raise RemoteProtocolError("the job names an alignment that is not kept here")
        if len(self._alignment.rows) != count:
            raise RemoteProtocolError(f"{count} rows are aligned there, {len(self._alignment.rows)} here")
        if self._pinned is not None and self._pinned.find(self._own.key) is None:
            self._pinned.keep(self._own.key, self._alignment)
        return self._alignment.rows

    async def blind_own(self, turn: Turn) -> AsyncIterator[pb.BlindedIds]:
        """Yield the own set, under our scalar and sorted."""
        step = self._begun().blind_own
        async for chunk in self._blinded(turn, self._own.party, len(self._own.ids), step):
            yield chunk

    async def blind_other(
        self, first: pb.BlindedIds, more: AsyncIterator[pb.BlindedIds]
    ) -> AsyncIterator[pb.BlindedIds]:
        """Yield another party's set under our scalar, sorted."""
        role, owner, total = self._begun(), first.owner, first.total
        if owner not in self._own.others:
            raise RemoteProtocolError("blinded ids came of a party that does not align its ids with ours")
        check_count(total)
        # One at a time: two sets at the same moment would each be the first of their owner, and fill memory.
        async with self._taking[owner]:
            points = await _points_of(first, more)
            step = partial(role.blind_other, owner, points)
            async for chunk in self._blinded(first.turn, owner, total, step):
                yield chunk

    async def reveal(
        self, first: pb.CommonPositions, more: AsyncIterator[pb.CommonPositions]
    ) -> AsyncIterator[pb.CommonPositions]:
        """Yield where common points of another party's set stood before we sorted them."""
        named = await _positions_of(first, more, lambda chunk: (chunk.turn, chunk.owner))
        before = await self.watch.thread("aligning", self._begun().reveal, first.owner, named)
        for part in chunk_slices(len(before), _POSITION_BYTES):
            yield pb.CommonPositions(turn=first.turn, owner=first.owner, positions=before[part].tolist())

    async def set_common(self, first: pb.CommonRows, more: AsyncIterator[pb.CommonRows]) -> pb.CommonRowsSet:
        """Note which own rows are common, on the disk, and say how many."""
        if len(first.alignment_id) != ALIGNMENT_ID_BYTES:
            raise RemoteProtocolError(f"an alignment's id has {ALIGNMENT_ID_BYTES} bytes")
        named = await _positions_of(first, more, lambda chunk: (chunk.turn, chunk.alignment_id))
        rows = await self.watch.thread("aligning", self._begun().set_common, named)
        alignment = Alignment(first.alignment_id, rows)
        await asyncio.to_thread(self._cache.keep, self._own.key, alignment)
        if self._pinned is not None:
            await asyncio.to_thread(self._pinned.keep, self._own.key, alignment)
        self._alignment = alignment
        return pb.CommonRowsSet(turn=first.turn, rows=len(rows))

    def done(self) -> None:
        """Drop the blinded sets; the common rows are on the disk, and nothing more is asked about them."""
        if self._alignment is not None:
            self._role = None

    async def describe(self, turn: Turn) -> pb.IdProfile:
        """Say what the own ids without a partner look like, in coarse classes.

        Of fewer than the policy's least intersection nothing is said: B could choose its own ids so that a
        single one of ours is left.
        """
        if self._role is None and self._alignment is None:
            raise RemoteProtocolError("ids are described only after they were aligned")
        ids: Sequence[str] = self._own.ids
        if self._alignment is not None:
            ids = ids_without_partner(ids, self._alignment.rows)
            if len(ids) < max(LEAST_DESCRIBED, self._own.least_common):
                return pb.IdProfile(turn=turn)
        profile = await asyncio.to_thread(IdProfile.of, ids)
        return pb.IdProfile(
            turn=turn,
            count=profile.count,
            usual=profile.usual,
            shortest=profile.shortest,
            longest=profile.longest,
            same_beginning=profile.same_beginning,
            percent=profile.percent,
        )

    async def _blinded(
        self, turn: Turn, owner: str, total: int, step: Callable[[Progress], Points]
    ) -> AsyncIterator[pb.BlindedIds]:
        """Do a step in a thread, say meanwhile how far it is, and yield the set when it is done."""
        tally = Tally()
        work = asyncio.ensure_future(self.watch.thread("aligning", step, partial(tally.add, owner)))
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=_REPORT_EVERY_S)
                yield pb.BlindedIds(turn=turn, owner=owner, total=total, done=tally.done)
            points = work.result()
        finally:
            # The caller may have gone: then nobody needs the rest of the work, nor hears of its error.
            tally.stop()
            work.add_done_callback(_heard)
        for part in chunk_slices(len(points), POINT_BYTES):
            chunk = points[part].tobytes()
            yield pb.BlindedIds(turn=turn, owner=owner, points=chunk, total=total, done=total)

    def _begun(self) -> PassiveAlignment:
        """Return the role, with a scalar that is drawn once a job."""
        if self._role is None:
            scalar = SecretScalar.draw(SystemEntropy())
            own = self._own
            self._role = PassiveAlignment(own.ids, scalar, self._executor, own.least_common)
        return self._role

    def _find(self, alignment_id: bytes) -> Alignment | None:
        """Return the alignment under an id from either place, else whatever the cache has."""
        pinned = None if self._pinned is None else self._pinned.find(self._own.key)
        if pinned is not None and pinned.alignment_id == alignment_id:
            return pinned
        return self._cache.find(self._own.key)

    def _is_current(self, alignment_id: bytes) -> bool:
        return self._alignment is not None and self._alignment.alignment_id == alignment_id


async def _points_of(first: pb.BlindedIds, more: AsyncIterator[pb.BlindedIds]) -> Points:
    """Put the chunks of one set together; more than was announced is not even kept."""
    data, total = bytearray(first.points), first.total
    async for chunk in more:
        if (chunk.turn, chunk.owner, chunk.total) != (first.turn, first.owner, total):
            raise RemoteProtocolError("one stream speaks of two sets of blinded ids")
        data += chunk.points
        if len(data) > total * POINT_BYTES:
            break
    points = parse_points(data)
    if len(points) != total:
        raise RemoteProtocolError(f"{total} blinded ids were announced, and another number came")
    return points


async def _positions_of(first: P, more: AsyncIterator[P], about: Callable[[P], object]) -> Ints:
    """Put the chunks of one list of positions together, eight bytes each however they are cut."""
    positions = array("q", first.positions)
    async for chunk in more:
        if about(chunk) != about(first):
            raise RemoteProtocolError("one stream speaks of two lists of common ids")
        positions.extend(chunk.positions)
        check_count(len(positions))
    return np.array(positions, dtype=np.int64)


def _heard(work: asyncio.Future[Points]) -> None:
    with suppress(asyncio.CancelledError):
        work.exception()
