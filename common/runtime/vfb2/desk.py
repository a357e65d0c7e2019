"""The engines of this party's running jobs, and the service that hands each call to the right one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Protocol, TypeVar

from common.errors import Refused, RemoteProtocolError, UnknownJob
from common.rpc.identity import Context, caller
from common.rpc.pb import job_pb2
from common.rpc.pb import vfb2_pb2 as pb
from common.rpc.pb.vfb2_pb2_grpc import Vfb2Servicer
from common.runtime.guest.job_calls import JobCalls
from common.runtime.hosting import JobHost
from common.runtime.vfb2.engine import Engine
from common.runtime.vfb2.guest_calls import TrainingCalls

M = TypeVar("M")


class Desk(Protocol):
    """Where engines are found by their job."""

    def engine(self, job_id: str) -> Engine | None:
        """Return the engine of a job that trains here now."""
        ...


class TrainingServicer(Vfb2Servicer):
    """Checks identity and turn, and hands on."""

    def __init__(self, host: JobHost[JobCalls], conducted: Desk | None = None) -> None:
        """Serve jobs of others in `host`, and those that this party conducts itself."""
        self._host = host
        self._conducted = conducted

    async def Prepare(self, request: pb.PrepareTraining, context: Context) -> pb.TrainingPrepared:  # noqa: N802
        return await self._hosted(request.turn, context).prepare(request)

    async def Begin(self, request: pb.BeginSession, context: Context) -> pb.SessionBegun:  # noqa: N802
        return await self._hosted(request.turn, context).begin(request)

    async def Dominate(  # noqa: N802
        self, request: AsyncIterator[pb.FromDominator], context: Context
    ) -> AsyncIterator[pb.ToDominator]:
        first = await _first_of(request)
        engine = self._engine(first.turn)
        root = _allowed(context, engine.place.job.dominators, engine.place.party)
        async for frame in engine.attend(root, first, request):
            yield frame

    async def PassSums(self, request: AsyncIterator[pb.PassedSums], context: Context) -> pb.SumsPassed:  # noqa: N802
        first = await _first_of(request)
        engine = self._engine(first.turn)
        child = _allowed(context, engine.place.job.members, engine.place.party)
        await engine.take_sums(child, first, request)
        return pb.SumsPassed(turn=first.turn)

    def _hosted(self, turn: job_pb2.Turn, context: Context) -> TrainingCalls:
        state = self._host.find(turn, caller(context)).state
        if not isinstance(state, TrainingCalls):
            raise RemoteProtocolError("the job's algorithm does not have this call")
        return state

    def _engine(self, turn: job_pb2.Turn) -> Engine:
        """Return the engine of a turn's job; who may speak to it the caller checks.

        Raises:
            UnknownJob: No such job trains here (yet).
            RemoteProtocolError: The turn speaks of another job under the same id.
        """
        engine = None if self._conducted is None else self._conducted.engine(turn.job_id)
        if engine is None:
            hosted = self._host.state_of(turn)
            engine = hosted.engine if isinstance(hosted, TrainingCalls) else None
        if engine is None:
            raise UnknownJob("no training of this job is under way here", advice="It may have restarted.")
        opened = engine.place.turn
        if opened.job_digest != turn.job_digest:
            raise RemoteProtocolError("the job's digest differs from the one it was opened with")
        if opened.attempt != turn.attempt:
            raise UnknownJob(f"attempt {turn.attempt} of the job is not the one that is open here")
        return engine


def _allowed(context: Context, parties: Collection[str], own: str) -> str:
    party = caller(context)
    if party == own or party not in parties:
        raise Refused(f"{party} may not make this call for this job")
    return party


async def _first_of(stream: AsyncIterator[M]) -> M:
    async for message in stream:
        return message
    raise RemoteProtocolError("an empty stream came")
