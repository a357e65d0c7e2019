"""What every job is at a party that does not conduct it, and how a call finds its job."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TypeVar

from common.errors import RemoteProtocolError
from common.rpc.identity import Context, caller
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb.passive_party_pb2_grpc import PassivePartyServicer
from common.rpc.wiretap import Traffic
from common.runtime.guest.align_calls import AlignmentCalls
from common.runtime.hosting import JobHost
from common.runtime.unfinished import Spent


class JobCalls(ABC):
    """The state of one job, whatever its algorithm."""

    def __init__(self, alignment: AlignmentCalls) -> None:
        self.alignment = alignment
        self.watch = alignment.watch
        self.before = Spent()
        self.opened: asyncio.Future[pb.OpenJobReply] = asyncio.get_running_loop().create_future()

    @abstractmethod
    async def leave(self) -> None:
        """Let go of whatever the job holds; it is over."""

    @abstractmethod
    def model(self, job_id: str, rounds: int) -> dict[str, object] | None:
        """Return what model.json is to keep of a job that finished; None for a job that trains nothing.

        Raises:
            RemoteProtocolError: The job is said to have finished after another round than ours.
        """

    def unseen(self) -> tuple[int, ...]:
        """Return, for each column with categories that no training row had, in how many common rows."""
        return ()

    def spent(self, traffic: Traffic) -> Spent:
        """Return what the job has cost this party so far, earlier attempts included."""
        now = Spent(traffic.sent_bytes, traffic.received_bytes, dict(self.watch.seconds))
        return self.before.plus(now)

    def notes(self) -> list[str]:
        """Return what this party's own record of the job says besides numbers."""
        return []


Calls = TypeVar("Calls", bound=JobCalls)


class JobServicer(PassivePartyServicer):
    """The part of the service that finds a call's job."""

    _host: JobHost[JobCalls]

    def _calls(self, kind: type[Calls], turn: pb.Turn, context: Context) -> Calls:
        """Return the state of the job of a turn.

        Raises:
            UnknownJob: It is not open here.
            Refused: The caller has no part in it.
            RemoteProtocolError: The call does not belong to a job of this algorithm.
        """
        state = self._host.find(turn, caller(context)).state
        if not isinstance(state, kind):
            raise RemoteProtocolError("the job's algorithm does not have this call")
        return state
