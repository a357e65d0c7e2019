"""The streams that a party dials in a session, and what is done when one breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, TypeVar

import grpc.aio
from google.protobuf.message import Message

from common.errors import ColonnadeError, PeerUnreachable, UnknownJob
from common.glm.outbox import Outbox
from common.rpc.channels import HELD_OPEN, open_channel
from common.rpc.pb import job_pb2
from common.rpc.pb import vfb2_pb2 as pb
from common.rpc.pb.vfb2_pb2_grpc import Vfb2Stub
from common.rpc.wiretap import Wiretap
from common.runtime.config.party import PartyConfig
from common.runtime.coordinator_client import peer_address
from common.runtime.vfb2.outbound import Outbound, most_asked

if TYPE_CHECKING:
    from common.rpc.pb.vfb2_pb2_grpc import Vfb2AsyncStub

W = TypeVar("W", bound=Message)

Heard = Callable[[str, pb.ToDominator], None]


class Neighbours:
    """Channels to the parties that this one dials while training; they last as long as the job."""

    def __init__(self, own: PartyConfig, names: Collection[str], wiretap: Wiretap) -> None:
        """Open a channel to each of them; nothing is dialled yet.

        Raises:
            ConfigError: This party's own file has no address of one of them.
        """
        self._channels: dict[str, grpc.aio.Channel] = {
            name: open_channel(name, peer_address(own, name), own.party, own.security, wiretap)
            for name in names
        }
        self._stubs: dict[str, Vfb2AsyncStub] = {
            name: Vfb2Stub(channel) for name, channel in self._channels.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Whom we dial."""
        return tuple(self._channels)

    def stub(self, name: str) -> Vfb2AsyncStub:
        """Return the calls of one of them."""
        return self._stubs[name]

    async def close(self) -> None:
        """Close all channels; what is still running on them ends."""
        for channel in self._channels.values():
            await channel.close()


class Streams:
    """The streams of one session that this party has dialled."""

    def __init__(self, neighbours: Neighbours, turn: job_pb2.Turn) -> None:
        self._neighbours = neighbours
        self._turn = turn
        self._tasks: list[asyncio.Task[None]] = []

    def pass_sums(
        self, parents: Collection[str], on_break: Callable[[str, Exception], None]
    ) -> Mapping[str, Outbound[pb.PassedSum]]:
        """Dial our parents in trees of other roots; return what waits for each."""
        queues: dict[str, Outbound[pb.PassedSum]] = {name: Outbound() for name in parents}
        for name, queue in queues.items():
            self._run(name, self._passing(name, queue), queue, on_break)
        return queues

    def dominate(
        self, outbox: Outbox, heard: Heard, on_break: Callable[[str, Exception], None]
    ) -> Mapping[str, Outbound[pb.DominatorWord]]:
        """Dial everybody else as a dominator; return what waits for each.

        Args:
            outbox: Ours.
            heard: Called with every message that comes back.
            on_break: Called with the party and the error, when a stream ends otherwise than by us.
        """
        queues: dict[str, Outbound[pb.DominatorWord]] = {
            name: Outbound(most_asked(outbox.max_staleness)) for name in self._neighbours.names
        }
        for name, queue in queues.items():
            self._run(name, self._dominating(name, queue, outbox.sent, heard), queue, on_break)
        return queues

    def cancel(self) -> None:
        """End all of them."""
        for task in self._tasks:
            task.cancel()

    def _run(
        self,
        name: str,
        stream: Coroutine[None, None, None],
        queue: Outbound[W],
        on_break: Callable[[str, Exception], None],
    ) -> None:
        task = asyncio.ensure_future(stream)

        def ended(done: asyncio.Task[None]) -> None:
            queue.abandon()  # gRPC would wait for its next word for ever
            if not done.cancelled() and (cause := done.exception()) is not None:
                on_break(name, cause if isinstance(cause, Exception) else RuntimeError(type(cause).__name__))

        task.add_done_callback(ended)
        self._tasks.append(task)

    async def _passing(self, name: str, queue: Outbound[pb.PassedSum]) -> None:
        async def frames() -> AsyncIterator[pb.PassedSums]:
            yield pb.PassedSums(turn=self._turn)
            async for sums in queue.batches():
                yield pb.PassedSums(turn=self._turn, sums=sums)

        await self._neighbours.stub(name).PassSums(frames(), timeout=HELD_OPEN)

    async def _dominating(
        self, name: str, queue: Outbound[pb.DominatorWord], sent: int, heard: Heard
    ) -> None:
        async def frames() -> AsyncIterator[pb.FromDominator]:
            yield pb.FromDominator(turn=self._turn, sent=sent)
            async for words in queue.batches():
                yield pb.FromDominator(turn=self._turn, words=words)

        async for frame in self._neighbours.stub(name).Dominate(frames(), timeout=HELD_OPEN):
            if frame.turn.round == self._turn.round:
                heard(name, frame)


def is_absence(exc: Exception) -> bool:
    """Return whether a stream broke because the other side is away or new, not by what was said."""
    return isinstance(exc, PeerUnreachable | UnknownJob) or not isinstance(exc, ColonnadeError)
