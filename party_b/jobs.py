"""The active party's jobs: what each one is, how far it has come, and how it ended."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from common.errors import ColonnadeError, JobCancelled, JobError, Refused, UnknownJob
from common.rpc.failures import detail_of
from common.rpc.pb import active_party_pb2 as pb
from common.rpc.pb.job_pb2 import ErrorDetail
from common.runtime.checkpoint import MAX_ATTEMPTS, Checkpoint
from common.runtime.config.job_kinds import Job, kind_of, round_word
from common.runtime.config.party import PartyConfig
from common.runtime.state import STATUS_FILE, JobStore
from common.runtime.stopwatch import Stopwatch

log = logging.getLogger("vfl.party_b")

# Events kept for whoever attaches late; the older ones of a very long job are dropped.
KEPT_EVENTS = 4096
MAX_RUNNING = 32
# How often a job is broken off at the same place, with no round more done, before it is given up.
MAX_FUTILE_ATTEMPTS = 8


@dataclass(slots=True)
class ActiveJob:
    """One job, from its submission on. Whoever conducts it reports here; whoever watches it waits here."""

    job_id: str
    config: Job
    submitted_s: float = field(default_factory=time.time)
    # The same moment by a clock that nobody sets while the job runs.
    begun_s: float = field(default_factory=time.monotonic)
    attempt: int = 0
    losses: list[str] = field(default_factory=list)  # of parties, in words, with time and round
    remarks: list[str] = field(default_factory=list)  # for the report: what was decided before it began
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, over all attempts
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    before: tuple[int, int] = (0, 0)  # bytes sent and received before this service was started
    recalled: bool = False  # from the disk, and nobody has remembered yet what it had cost
    keep: Callable[[], None] = lambda: None
    ended_s: float = 0.0
    status: pb.JobStatus.ValueType = pb.QUEUED
    phase: str = "queued"
    rounds: int = 0
    loss: float | None = None
    error: ErrorDetail | None = None
    cause: ColonnadeError | None = None
    cancelled_because: str = ""
    traffic: Callable[[], tuple[int, int]] = lambda: (0, 0)
    task: asyncio.Task[None] | None = None
    _events: deque[pb.JobEvent] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    _published: int = 0
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _training_since: tuple[float, int] = (0.0, 0)
    _futile: int = 0
    _furthest: tuple[str, int] = ("", 0)

    async def enter(self, phase: str, message: str) -> None:
        """Begin a phase, one of those that active_party.proto lists."""
        self.phase = phase
        if phase == "training":
            self._training_since = (time.monotonic(), self.rounds)
        log.info("job %s: %s", self.job_id, message)
        await self._publish(pb.JobEvent(message=message))

    async def advance(self, message: str, eta_s: float | None = None) -> None:
        """Report how far a phase has come besides its rounds; None: nobody knows how long it takes."""
        event = pb.JobEvent(message=message)
        if eta_s is not None:
            event.eta_s = eta_s
        await self._publish(event)

    async def warn(self, notice: str) -> None:
        """Report something that its operator should know while the job goes on."""
        log.warning("job %s: %s", self.job_id, notice)
        await self._publish(pb.JobEvent(notice=notice))

    async def round_done(self, number: int, loss: float | None, message: str = "") -> None:
        """Report a round, with its loss in mean form where there is one, and what else there is to say."""
        self.rounds = number
        self.loss = self.loss if loss is None else loss
        since_s, first = self._training_since
        per_round_s = (time.monotonic() - since_s) / max(1, number - first)
        event = pb.JobEvent(message=message, eta_s=per_round_s * (self.config.most_rounds - number))
        if loss is not None:
            event.loss = loss
        await self._publish(event)

    def may_go_on(self) -> bool:
        """Count an attempt that was broken off; tell whether another one makes sense.

        A party that is lost again and again at the same place will not get beyond it.
        """
        furthest = (self.phase, self.rounds)
        self._futile = self._futile + 1 if furthest == self._furthest else 1
        self._furthest = furthest
        return self._futile < MAX_FUTILE_ATTEMPTS and self.attempt < MAX_ATTEMPTS

    def note_loss(self, what: str) -> None:
        """Count a loss, for the report, and make the next attempt the current one; not durable yet."""
        moment = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        self.losses.append(f"{moment}, after round {self.rounds}: {what}")
        self.attempt += 1

    def remember(self, cost: Mapping[str, Any] | None) -> None:
        """Take over what the job had cost before this service was started, as `JobLife.cost` tells it."""
        if cost is not None and self.recalled:
            self.recalled = False
            self.before = (int(cost["sent_bytes"]), int(cost["received_bytes"]))
            self.seconds.update(cost["phases"])
            self.stopwatch.seconds.update(cost["computing"])

    async def end(self, status: pb.JobStatus.ValueType, message: str) -> None:
        """Report how the job ended; the last event carries the record."""
        self.status, self.ended_s, self.phase = status, time.time(), "ended"
        await self._publish(pb.JobEvent(message=message, record=self.record()))

    async def watch(self) -> AsyncIterator[pb.JobEvent]:
        """Yield all events so far, and then each new one until the job has ended."""
        seen = 0
        while True:
            async with self._news:
                while self._published == seen and not self.ended_s:
                    await self._news.wait()
                missed = self._published - seen
                fresh = list(self._events)[-missed:] if missed else []
                seen = self._published
            for event in fresh:
                yield event
            if self.ended_s:
                return

    def record(self) -> pb.JobRecord:
        """Return the job as its operator sees it."""
        record = pb.JobRecord(
            job_id=self.job_id,
            name=self.config.job,
            algorithm=self.config.algorithm,
            status=self.status,
            submitted_unix_s=self.submitted_s,
            ended_unix_s=self.ended_s,
            rounds=self.rounds,
            max_rounds=self.config.most_rounds,
            phase=self.phase,
            job_json=self.config.canonical_json(),
            error=self.error,
        )
        if self.loss is not None:
            record.loss = self.loss
        return record

    async def _publish(self, event: pb.JobEvent) -> None:
        event.job_id, event.phase = self.job_id, self.phase
        event.round, event.max_rounds = self.rounds, self.config.most_rounds
        event.unit = round_word(self.config.algorithm)
        event.elapsed_s = time.monotonic() - self.begun_s
        event.sent_bytes, event.received_bytes = self.traffic()
        async with self._news:
            self._events.append(event)
            self._published += 1
            self._news.notify_all()


class JobBook:
    """All jobs of the active party: the running ones, and those its state directory remembers."""

    def __init__(
        self, own: PartyConfig, store: JobStore, conduct: Callable[[ActiveJob], Awaitable[None]]
    ) -> None:
        """`conduct` runs a job to its end, and raises if it does not end with a model."""
        self._own = own
        self._store = store
        self._conduct = conduct
        self._jobs: dict[str, ActiveJob] = {}

    async def recall(self) -> None:
        """Read the jobs of earlier runs of this service; go on with those it left, or call them failed."""
        for job_id in self._store.list_jobs():
            try:
                job = _recalled(job_id, self._store.read_json(job_id, STATUS_FILE))
            except (ColonnadeError, ValueError, KeyError, TypeError, OverflowError) as exc:
                log.warning(
                    "the record of job %s cannot be read and is left alone: %s", job_id, type(exc).__name__
                )
                continue
            self._jobs[job_id] = job
            if job.status not in (pb.QUEUED, pb.RUNNING):
                Checkpoint.of(self._store, job_id).discard()
                continue
            stopped = JobError(
                f"the service of {self._own.party} stopped while the job ran", advice="Submit the job again."
            )
            job.note_loss(stopped.what)
            if job.config.resumes and job.attempt <= MAX_ATTEMPTS:
                self._start(job)
            else:
                await self._end(job, pb.JOB_FAILED, stopped)

    def submit(self, config: Job) -> ActiveJob:
        """Take a job and start it.

        Raises:
            Refused: It is not this party's to conduct, or too many are running.
        """
        if config.active != self._own.party:
            raise Refused(
                f"the job names {config.active} as its active party; this is {self._own.party}",
                advice="Submit the job to the active party, or correct `active` in the job file.",
            )
        if sum(job.status in (pb.QUEUED, pb.RUNNING) for job in self._jobs.values()) >= MAX_RUNNING:
            raise Refused(f"{MAX_RUNNING} jobs are running; no more are taken at a time")
        job = ActiveJob(_new_job_id(config.job), config)
        self._keep(job)
        self._jobs[job.job_id] = job
        self._start(job)
        return job

    def find(self, reference: str) -> ActiveJob:
        """Return a job by its id, or the newest one of a name.

        Raises:
            UnknownJob: There is none.
        """
        if reference in self._jobs:
            return self._jobs[reference]
        named = [job for job in self._jobs.values() if job.config.job == reference]
        if not named:
            raise UnknownJob(
                f"{self._own.party} has no job {reference[:128]!r}", advice="`vfl jobs` lists them."
            )
        return max(named, key=lambda job: job.submitted_s)

    def find_trained(self, reference: str) -> ActiveJob:
        """Return a job by its id, or the newest one of a name that has finished; the newest, if none has.

        Raises:
            UnknownJob: There is none.
        """
        newest = self.find(reference)
        finished = [
            job
            for job in self._jobs.values()
            if job.config.job == newest.config.job and job.status == pb.JOB_FINISHED
        ]
        if newest.job_id == reference or not finished:
            return newest
        return max(finished, key=lambda job: job.submitted_s)

    def running(self, config: Job) -> ActiveJob | None:
        """Return a job of exactly these settings that has not ended."""
        alike = (job for job in self._jobs.values() if job.config == config)
        return next((job for job in alike if job.status in (pb.QUEUED, pb.RUNNING)), None)

    def all(self) -> list[ActiveJob]:
        """Return every job, the newest first."""
        return sorted(self._jobs.values(), key=lambda job: job.submitted_s, reverse=True)

    async def cancel(self, job: ActiveJob, because: str) -> None:
        """End a job, and tell its parties the reason; nothing happens to one that has ended."""
        if job.task is not None and not job.task.done():
            # A second cancel would break off what the first one began: telling the other parties.
            if not job.cancelled_because:
                job.cancelled_because = because
                job.task.cancel()
            await asyncio.wait({job.task})

    async def cancel_all(self) -> None:
        """End every running job, because the service stops."""
        because = f"{self._own.party} is shutting down"
        await asyncio.gather(*(self.cancel(job, because) for job in self._jobs.values()))

    def _start(self, job: ActiveJob) -> None:
        job.keep = lambda: self._keep(job)
        job.task = asyncio.create_task(self._run(job), name=job.job_id)

    async def _run(self, job: ActiveJob) -> None:
        job.status = pb.RUNNING
        try:
            self._keep(job)
            await self._conduct(job)
        except asyncio.CancelledError:
            cancelled = JobCancelled(f"the job was cancelled: {job.cancelled_because}")
            await self._end(job, pb.JOB_CANCELLED, cancelled)
        except ColonnadeError as exc:
            await self._end(job, pb.JOB_FAILED, exc)
        except Exception as exc:
            # The text of a foreign exception may hold a value of a row, so only its class is passed on.
            log.exception("job %s failed by a bug", job.job_id)
            await self._end(
                job, pb.JOB_FAILED, JobError(f"a bug in Colonnade ({type(exc).__name__}); see the log")
            )
        else:
            await self._end(job, pb.JOB_FINISHED, None)

    async def _end(
        self, job: ActiveJob, status: pb.JobStatus.ValueType, error: ColonnadeError | None
    ) -> None:
        if error is not None:
            job.error, job.cause = detail_of(error, self._own.party), error
        await job.end(status, "finished" if error is None else error.what)
        log.info("job %s ended: %s", job.job_id, pb.JobStatus.Name(status))
        try:
            self._keep(job)
        except ColonnadeError as exc:
            # The job is over all the same, and whoever watches it knows; only a restart will not.
            log.error("the record of job %s cannot be kept: %s", job.job_id, exc)
        else:
            await asyncio.to_thread(Checkpoint.of(self._store, job.job_id).discard)

    def _keep(self, job: ActiveJob) -> None:
        error = job.error
        kept = {
            "job": json.loads(job.config.canonical_json()),
            "status": pb.JobStatus.Name(job.status),
            "submitted_unix_s": job.submitted_s,
            "ended_unix_s": job.ended_s,
            "rounds": job.rounds,
            "loss": job.loss,
            "attempt": job.attempt,
            "losses": job.losses,
            "remarks": job.remarks,
            "error": None
            if error is None
            else {name: getattr(error, name) for name in ("error", "party", "what", "where", "advice")},
        }
        self._store.write_json(job.job_id, STATUS_FILE, kept)


def _new_job_id(name: str) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{re.sub(r'[^a-z0-9_-]', '-', name.lower())}-{stamp}-{secrets.token_hex(2)}"


def _recalled(job_id: str, kept: dict[str, object]) -> ActiveJob:
    config = kind_of(kept["job"]).model_validate_json(json.dumps(kept["job"]))
    job = ActiveJob(job_id, config, recalled=True)
    job.submitted_s, job.ended_s = float(str(kept["submitted_unix_s"])), float(str(kept["ended_unix_s"]))
    job.begun_s -= max(0.0, time.time() - job.submitted_s)
    job.status = pb.JobStatus.Value(str(kept["status"]))
    job.phase = "ended" if job.ended_s else "queued"
    job.rounds = int(str(kept["rounds"]))
    job.attempt, losses = int(str(kept.get("attempt", 0))), kept.get("losses", [])
    job.losses = [str(loss) for loss in losses] if isinstance(losses, list) else []
    remarks = kept.get("remarks", [])
    job.remarks = [str(remark) for remark in remarks] if isinstance(remarks, list) else []
    job.loss = None if kept["loss"] is None else float(str(kept["loss"]))
    if isinstance(kept["error"], dict):
        job.error = ErrorDetail(**kept["error"])
    return job
