"""A job as a guest meets it: opened, attended and closed by others (protos/vfl/v1/job.proto).

The passive parties and the coordinator host jobs; the active party conducts them. Whatever a protocol needs
besides lives in the job's `state`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Generic, TypeVar

from common.errors import Refused, RemoteProtocolError, UnknownJob
from common.rpc.greeting import check_caller
from common.rpc.pb import job_pb2 as pb
from common.rpc.presence import Attendees
from common.runtime.config_job import JobConfig
from common.runtime.config_party import PartyConfig, Policy
from common.runtime.config_predict import PredictJob
from common.runtime.job_kinds import Job, job_from_json
from common.runtime.state import STATUS_FILE, JobStore, checked_job_id

log = logging.getLogger("vfl.runtime")

State = TypeVar("State")

# A peer may not fill our memory with jobs it never ends, nor keep everybody else out.
MAX_OPEN_JOBS = 64
MAX_OPEN_JOBS_EACH = 32
# How many ended jobs are remembered, so that a late call is told why its job is gone.
REMEMBERED_JOBS = 256


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended: the outcome, the reason, and the last round that counts."""

    outcome: pb.Outcome.ValueType
    reason: str
    rounds: int = 0


@dataclass(slots=True)
class HostedJob(Generic[State]):
    """One open job of others, at this party."""

    job_id: str
    digest: bytes
    config: Job
    state: State
    attendees: Attendees
    ending: asyncio.Task[pb.CloseJobReply] | None = None


@dataclass(frozen=True, slots=True)
class _Ended:
    """What is remembered of a job that is over; its state, and with it any key, is not."""

    ending: Ending
    callers: tuple[str, ...]
    reply: asyncio.Task[pb.CloseJobReply]


class JobHost(Generic[State]):
    """The jobs that this party takes part in without conducting them."""

    def __init__(
        self,
        own: PartyConfig,
        on_end: Callable[[HostedJob[State], Ending], Coroutine[None, None, pb.CloseJobReply]],
    ) -> None:
        """`on_end` is called once a job, however it ends: it keeps or drops what the job left."""
        self._own = own
        self._store = JobStore(own.state)
        self._on_end = on_end
        self._jobs: dict[str, HostedJob[State]] = {}
        self._ended: OrderedDict[str, _Ended] = OrderedDict()

    def admit(self, request: pb.OpenJobRequest, caller: str) -> Job:
        """Return the job that a caller wants to open, if it may and we agree.

        Raises:
            Refused: Version, role, membership or policy do not fit; says which.
            RemoteProtocolError: The job is damaged, or its id is none.
        """
        check_caller(request.greeting, caller)
        checked_job_id(request.turn.job_id)
        job = job_from_json(request.job_json)
        if hashlib.sha256(request.job_json).digest() != request.turn.job_digest:
            raise RemoteProtocolError("the job that was sent does not have the digest that came with it")
        role = job.role_of(self._own.party)
        if role != self._own.role or request.expected_role != self._own.role:
            raise Refused(
                f"{self._own.party} is a {self._own.role} party; the job names it as {role or 'no party'}",
                advice="Give every party in the job file the role that its own party file declares.",
            )
        callers = self._callers(job)
        if caller not in callers:
            raise Refused(f"{caller} may not open this job here; {' or '.join(callers)} may")
        self._agree(job)
        return job

    def add(self, request: pb.OpenJobRequest, job: Job, state: State) -> HostedJob[State]:
        """Open a job that was admitted; nobody is expected to be present in it yet."""
        if len(self._jobs) >= MAX_OPEN_JOBS:
            raise Refused(f"{self._own.party} has {MAX_OPEN_JOBS} open jobs, and takes no more at a time")
        if sum(hosted.config.active == job.active for hosted in self._jobs.values()) >= MAX_OPEN_JOBS_EACH:
            raise Refused(f"{job.active} has {MAX_OPEN_JOBS_EACH} open jobs here, and gets no more at a time")
        job_id = request.turn.job_id
        if job_id in self._jobs or job_id in self._ended or self._store.has(job_id, STATUS_FILE):
            # Opened twice at the same moment, it would lose the state of the first opening.
            raise Refused("a job of this id is open or has ended here; submit it again under a new one")
        attendees = Attendees(self._own.deadlines.peer_s, lambda party: self._vanished(job_id, party))
        hosted = HostedJob(job_id, request.turn.job_digest, job, state, attendees)
        self._jobs[job_id] = hosted
        log.info("job %s opened by %s", job_id, job.active)
        return hosted

    def find(self, turn: pb.Turn, caller: str, allowed: Collection[str] | None = None) -> HostedJob[State]:
        """Return the open job of a turn, for a caller that it names for the role in question.

        Args:
            turn: Of the message.
            caller: From the caller's certificate.
            allowed: Who may make this call; by default every party that may open the job here.

        Raises:
            UnknownJob: It is not open here, or not any more; says why.
            RemoteProtocolError: The turn speaks of another job under the same id.
            Refused: The job does not name the caller for this.
        """
        hosted = self._jobs.get(turn.job_id)
        if hosted is None:
            raise self._unknown(turn.job_id, caller)
        if caller not in (self._callers(hosted.config) if allowed is None else allowed):
            raise Refused(f"{caller} may not make this call for this job")
        if hosted.digest != turn.job_digest:
            raise RemoteProtocolError("the job's digest differs from the one it was opened with")
        return hosted

    def known(self, turn: pb.Turn, caller: str) -> HostedJob[State] | None:
        """Return the open job of a turn, None if this is its first opening; checks as `find` does."""
        return self.find(turn, caller) if turn.job_id in self._jobs else None

    async def attend(self, turn: pb.Turn, caller: str) -> AsyncIterator[pb.Presence]:
        """Answer the Attend call: heartbeats until the job ends or the caller goes."""
        hosted = self.find(turn, caller)
        async for presence in hosted.attendees.serve(caller, turn):
            yield presence

    async def close(self, request: pb.CloseJobRequest, caller: str) -> pb.CloseJobReply:
        """Answer the CloseJob call; a repeated one gets the same answer.

        Raises:
            UnknownJob: The job cannot finish any more: it has ended here in another way.
        """
        ended = self._ended.get(request.turn.job_id)
        if ended is not None and caller in ended.callers:
            if request.outcome == pb.FINISHED != ended.ending.outcome:
                raise self._unknown(request.turn.job_id, caller)
            return await asyncio.shield(ended.reply)
        hosted = self.find(request.turn, caller)
        return await self.end(hosted, Ending(request.outcome, request.reason, request.turn.round))

    async def end(self, hosted: HostedJob[State], ending: Ending) -> pb.CloseJobReply:
        """End a job: once, whoever asks first."""
        return await asyncio.shield(self._begin_end(hosted, ending))

    async def end_all(self, reason: str) -> None:
        """End every open job, because this party stops."""
        for hosted in list(self._jobs.values()):
            await self.end(hosted, Ending(pb.CANCELLED, reason))

    def _vanished(self, job_id: str, party: str) -> None:
        hosted = self._jobs.get(job_id)
        if hosted is not None:
            waited_s = self._own.deadlines.peer_s
            self._begin_end(
                hosted, Ending(pb.FAILED, f"{party} was gone for {waited_s:g} s (deadlines.peer_s)")
            )

    def _begin_end(self, hosted: HostedJob[State], ending: Ending) -> asyncio.Task[pb.CloseJobReply]:
        if hosted.ending is None:
            self._jobs.pop(hosted.job_id, None)
            hosted.attendees.end(ending.reason)
            hosted.ending = asyncio.ensure_future(self._on_end(hosted, ending))
            self._ended[hosted.job_id] = _Ended(ending, self._callers(hosted.config), hosted.ending)
            while len(self._ended) > REMEMBERED_JOBS:
                self._ended.popitem(last=False)
            name = pb.Outcome.Name(ending.outcome).lower()
            log.info("job %s %s%s", hosted.job_id, name, f": {ending.reason}" if ending.reason else "")
        return hosted.ending

    def _callers(self, job: Job) -> tuple[str, ...]:
        return (job.active, *job.passive) if self._own.role == "coordinator" else (job.active,)

    def _unknown(self, job_id: str, caller: str) -> UnknownJob:
        ended = self._ended.get(job_id)
        if ended is None or caller not in ended.callers:
            return UnknownJob(
                f"{self._own.party} has no open job of this id", advice="It may have restarted."
            )
        outcome = pb.Outcome.Name(ended.ending.outcome).lower()
        reason = ended.ending.reason or "no reason given"
        return UnknownJob(f"the job has ended at {self._own.party} ({outcome}): {reason}")

    def _agree(self, job: Job) -> None:
        policy, own = self._own.policy, self._own.party
        if isinstance(job, PredictJob):
            _agree_to_scoring(policy, own, job)
        elif job.algorithm not in policy.algorithms:
            raise Refused(f"the policy of {own} does not allow the algorithm {job.algorithm}")
        if isinstance(job, JobConfig) and job.crypto.key_bits < policy.min_key_bits:
            raise Refused(
                f"the policy of {own} asks for keys of {policy.min_key_bits} bits, "
                f"the job has {job.crypto.key_bits}",
                advice="Raise crypto.key_bits in the job file.",
            )
        for party in job.members:
            if party != own and party not in policy.peers:
                raise Refused(f"the policy of {own} does not allow jobs with {party}")


def _agree_to_scoring(policy: Policy, own: str, job: PredictJob) -> None:
    if policy.prediction is None:
        raise Refused(
            f"the policy of {own} does not allow scoring new rows",
            advice=f"The administrator of {own} decides on policy.prediction in its party file.",
        )
    if job.mode == "online" and not policy.prediction.online:
        raise Refused(
            f"the policy of {own} does not allow scoring rows one by one (mode: online)",
            advice=f"The administrator of {own} decides on policy.prediction.online in its party file.",
        )
