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

from common.errors import ColonnadeError, PeerUnreachable, Refused, RemoteProtocolError, UnknownJob
from common.rpc.greeting import check_caller
from common.rpc.pb import job_pb2 as pb
from common.rpc.presence import Attendees
from common.runtime.config.job import JobConfig
from common.runtime.config.job_kinds import Job, job_from_json
from common.runtime.config.party import PartyConfig, Policy
from common.runtime.config.predict import PredictJob
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.state import JobStore, checked_job_id
from common.runtime.unfinished import Ending, GuestDisk, OpenedJob

log = logging.getLogger("vfl.runtime")

State = TypeVar("State")

# A peer may not fill our memory with jobs it never ends, nor keep everybody else out.
MAX_OPEN_JOBS = 64
MAX_OPEN_JOBS_EACH = 32
# How many ended jobs are remembered, so that a late call is told why its job is gone.
REMEMBERED_JOBS = 256


@dataclass(slots=True)
class HostedJob(Generic[State]):
    """One open job of others, at this party."""

    job_id: str
    digest: bytes
    config: Job
    state: State
    attendees: Attendees
    attempt: int = 0
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
        on_superseded: Callable[[HostedJob[State]], Coroutine[None, None, None]],
    ) -> None:
        """Create the list.

        Args:
            own: This party.
            on_end: Called once a job, however it ends: it keeps or drops what the job left.
            on_superseded: Called when a later attempt takes an open job's place: it lets go of connections,
                and of nothing on the disk.
        """
        self._own = own
        self._disk = GuestDisk(JobStore(own.state))
        self._on_end = on_end
        self._on_superseded = on_superseded
        self._awaited: dict[str, asyncio.TimerHandle] = {}
        self._jobs: dict[str, HostedJob[State]] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
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

    async def recall(self) -> None:
        """Expect the active parties of jobs that an earlier run of this service left unfinished.

        Whoever does not open its job again within `deadlines.peer_s` has given it up.
        """
        for opened in await asyncio.to_thread(lambda: list(self._disk.unfinished())):
            log.info("job %s is unfinished; %s may open it again", opened.job_id, opened.config.active)
            loop = asyncio.get_running_loop()
            self._awaited[opened.job_id] = loop.call_later(
                self._own.deadlines.peer_s, self._not_opened_again, opened
            )

    async def add(self, request: pb.OpenJobRequest, job: Job, state: State) -> HostedJob[State]:
        """Open a job that was admitted; nobody is expected to be present in it yet.

        Raises:
            Refused: There are too many, it is open already, or it has ended here.
        """
        if len(self._jobs) >= MAX_OPEN_JOBS:
            raise Refused(f"{self._own.party} has {MAX_OPEN_JOBS} open jobs, and takes no more at a time")
        if sum(hosted.config.active == job.active for hosted in self._jobs.values()) >= MAX_OPEN_JOBS_EACH:
            raise Refused(f"{job.active} has {MAX_OPEN_JOBS_EACH} open jobs here, and gets no more at a time")
        turn, job_id = request.turn, request.turn.job_id
        if job_id in self._jobs:
            # Opened twice at the same moment, it would lose the state of the first opening.
            raise Refused("a job of this id is open here; submit it again under a new one")
        if job_id in self._ended:
            ending = self._ended[job_id].ending
            raise Refused(
                f"a job of this id has ended here ({ending.word}{': ' if ending.reason else ''}"
                f"{ending.reason}); submit it again under a new one"
            )
        self._disk.require_unused(turn, job)
        attendees = Attendees(self._own.deadlines.peer_s, lambda party: self._vanished(job_id, party))
        hosted = HostedJob(job_id, turn.job_digest, job, state, attendees, turn.attempt)
        self._jobs[job_id] = hosted
        self._stop_awaiting(job_id)
        if job.resumes:
            await self._note_opening(hosted)
        again = f" again, attempt {turn.attempt}" if turn.attempt else ""
        log.info("job %s opened by %s%s", job_id, job.active, again)
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
        return self._of_turn(hosted, turn)

    def state_of(self, turn: pb.Turn) -> State | None:
        """Return the state of the open job of a turn; who may have to do with it the caller checks.

        Raises:
            RemoteProtocolError: The turn speaks of another job under the same id.
            UnknownJob: Another attempt of it is open here.
        """
        hosted = self._jobs.get(turn.job_id)
        return None if hosted is None else self._of_turn(hosted, turn).state

    def _of_turn(self, hosted: HostedJob[State], turn: pb.Turn) -> HostedJob[State]:
        if hosted.digest != turn.job_digest:
            raise RemoteProtocolError("the job's digest differs from the one it was opened with")
        if hosted.attempt != turn.attempt:
            raise UnknownJob(
                f"attempt {turn.attempt} of the job is not the one that is open at {self._own.party}"
            )
        return hosted

    async def known(self, turn: pb.Turn, caller: str) -> HostedJob[State] | None:
        """Return the open job of a turn, None if it is still to be opened; checks as `find` does.

        A later attempt ends the earlier one here: who opens the job again is not missing any longer.
        """
        hosted = self._jobs.get(turn.job_id)
        if hosted is not None:
            if not hosted.config.resumes or turn.attempt <= hosted.attempt:
                return self.find(turn, caller)
            current = pb.Turn(job_id=turn.job_id, job_digest=turn.job_digest, attempt=hosted.attempt)
            self._supersede(self.find(current, caller))
            self._leaving[turn.job_id] = asyncio.ensure_future(self._leave(hosted))
        if turn.job_id in self._leaving:
            # Shielded: a caller that is lost meanwhile must not leave two attempts at work on one folder.
            await asyncio.shield(self._leaving[turn.job_id])
        # Another caller of the same attempt may have opened it meanwhile.
        return self.find(turn, caller) if turn.job_id in self._jobs else None

    async def attend(self, turn: pb.Turn, caller: str) -> AsyncIterator[pb.Presence]:
        """Answer the Attend call: heartbeats until the job ends or the caller goes."""
        hosted = self.find(turn, caller)
        async for presence in hosted.attendees.serve(caller, turn):
            yield presence

    async def close(self, request: pb.CloseJobRequest, caller: str) -> pb.CloseJobReply:
        """Answer the CloseJob call; a repeated one gets the same answer, also after a restart.

        Raises:
            UnknownJob: The job cannot finish any more: it has ended here in another way.
            RemoteProtocolError: The request does not say how the job ended.
        """
        turn = request.turn
        ended = self._ended.get(turn.job_id)
        if ended is not None and caller in ended.callers:
            if request.outcome == pb.FINISHED != ended.ending.outcome:
                raise self._unknown(turn.job_id, caller)
            return await asyncio.shield(ended.reply)
        if turn.job_id not in self._jobs:
            reply = await asyncio.to_thread(self._close_on_disk, request, caller)
            self._stop_awaiting(turn.job_id)
            return reply
        # The job is closed in whatever attempt it is open: who closes it may not have opened it again.
        current = pb.Turn(job_id=turn.job_id, job_digest=turn.job_digest)
        current.attempt = min(turn.attempt, self._jobs[turn.job_id].attempt)
        return await self.end(self.find(current, caller), Ending.asked(request))

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
            hosted.ending = asyncio.ensure_future(self._finish(hosted, ending))
            self._ended[hosted.job_id] = _Ended(ending, self._callers(hosted.config), hosted.ending)
            while len(self._ended) > REMEMBERED_JOBS:
                self._ended.popitem(last=False)
            log.info("job %s %s%s", hosted.job_id, ending.word, f": {ending.reason}" if ending.reason else "")
        return hosted.ending

    async def _finish(self, hosted: HostedJob[State], ending: Ending) -> pb.CloseJobReply:
        reply = await self._on_end(hosted, ending)
        await asyncio.to_thread(self._disk.discard, hosted.job_id)
        return reply

    async def _leave(self, hosted: HostedJob[State]) -> None:
        try:
            await self._on_superseded(hosted)
        finally:
            del self._leaving[hosted.job_id]

    def _supersede(self, hosted: HostedJob[State]) -> None:
        """Drop an earlier attempt from memory; its calls find no job any more."""
        self._jobs.pop(hosted.job_id, None)
        hosted.attendees.supersede()

    async def _note_opening(self, hosted: HostedJob[State]) -> None:
        opened = OpenedJob(hosted.job_id, hosted.config, hosted.attempt)
        try:
            await asyncio.to_thread(self._disk.note_opening, opened)
        except ColonnadeError:
            self._supersede(hosted)
            raise

    def _close_on_disk(self, request: pb.CloseJobRequest, caller: str) -> pb.CloseJobReply:
        """Close a job that is not open in memory: this service was restarted."""
        turn = request.turn
        checked_job_id(turn.job_id)
        kept = self._disk.reply_of(turn)
        if kept is not None:
            config, ended, reply = kept
            self._require_caller(config, turn, caller)
            if request.outcome == pb.FINISHED != ended.outcome:
                raise UnknownJob(f"the job has ended at {self._own.party} ({ended.word}): {ended.reason}")
            return reply
        opened = self._disk.opened(turn.job_id)
        if opened is None:
            raise self._unknown(turn.job_id, caller)
        self._require_caller(opened.config, turn, caller)
        closed = self._disk.end(opened, Ending.asked(request))
        if closed is None:
            raise self._unknown(turn.job_id, caller)
        return closed

    def _require_caller(self, config: Job, turn: pb.Turn, caller: str) -> None:
        if caller not in self._callers(config):
            raise self._unknown(turn.job_id, caller)  # It is told nothing, not even that there is such a job.
        if config.digest() != turn.job_digest:
            raise RemoteProtocolError("the job's digest differs from the one it was opened with")

    def _not_opened_again(self, opened: OpenedJob) -> None:
        self._awaited.pop(opened.job_id, None)
        waited = f"{self._own.deadlines.peer_s:g} s (deadlines.peer_s)"
        reason = f"{opened.config.active} did not open the job again within {waited} of our restart"
        try:
            self._disk.end(opened, Ending(pb.FAILED, reason))
        except ColonnadeError as exc:
            log.error("the end of job %s cannot be kept: %s", opened.job_id, exc)

    def _stop_awaiting(self, job_id: str) -> None:
        awaited = self._awaited.pop(job_id, None)
        if awaited is not None:
            awaited.cancel()

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
            raise Refused(
                f"the policy of {own} does not allow the algorithm {job.algorithm}",
                advice=f"The administrator of {own} decides on policy.algorithms in its party file.",
            )
        if isinstance(job, JobConfig) and job.crypto.key_bits < policy.min_key_bits:
            raise Refused(
                f"the policy of {own} asks for keys of {policy.min_key_bits} bits, "
                f"the job has {job.crypto.key_bits}",
                advice="Raise crypto.key_bits in the job file.",
            )
        if isinstance(job, JobConfig) and job.crypto.noise not in policy.noise:
            raise Refused(
                f"the policy of {own} does not allow crypto.noise: {job.crypto.noise}",
                advice=f"The administrator of {own} decides on policy.noise in its party file.",
            )
        if isinstance(job, Vfb2Job) and job.train.theta == "encrypted":
            _require_key(policy, own, job.train.theta_key_bits)
        for party in job.members:
            if party != own and party not in policy.peers:
                raise Refused(f"the policy of {own} does not allow jobs with {party}")


def _require_key(policy: Policy, own: str, bits: int) -> None:
    if bits < policy.min_key_bits:
        raise Refused(
            f"the policy of {own} asks for keys of {policy.min_key_bits} bits, the job has {bits}",
            advice="Raise train.theta_key_bits in the job file.",
        )


def is_loss(job: Job, exc: ColonnadeError) -> bool:
    """Tell whether an error is the loss of a party after which the job can be opened again."""
    return job.resumes and isinstance(exc, PeerUnreachable | UnknownJob)


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
