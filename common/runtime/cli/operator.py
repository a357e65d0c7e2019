"""What the active party's operator can ask of its service: the client of protos/vfl/v1/active_party.proto.

The service answers a caller that shows the active party's own certificate and nobody else, so the operator
works with the party file of the active party.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import common.errors
from common.errors import (
    ColonnadeError,
    ConfigError,
    JobCancelled,
    JobError,
    PeerUnreachable,
    RemoteProtocolError,
)
from common.rpc.channels import HELD_OPEN, open_channel
from common.rpc.pb.active_party_pb2 import (
    JOB_CANCELLED,
    JOB_FAILED,
    JOB_FINISHED,
    JobEvent,
    JobRecord,
    JobReference,
    ListJobsRequest,
    ScoreIdsReply,
    ScoreIdsRequest,
    SubmitJobRequest,
)
from common.rpc.pb.active_party_pb2_grpc import ActivePartyStub
from common.rpc.wiretap import Wiretap
from common.runtime.config.job_kinds import Job
from common.runtime.config.party import PartyConfig
from common.runtime.state import write_atomically

if TYPE_CHECKING:
    # Only the type stubs know that a stub on an asyncio channel makes asyncio calls.
    from common.rpc.pb.active_party_pb2_grpc import ActivePartyAsyncStub

_ARTIFACT_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,63}\.(?:json|html|csv|safetensors)")


@dataclass(frozen=True, slots=True)
class Operator:
    """A connection to the service of one's own active party."""

    config: PartyConfig
    stub: ActivePartyAsyncStub

    async def submit(self, job: Job) -> JobRecord:
        """Hand in a job; return its record with the job id."""
        return await self.stub.SubmitJob(
            SubmitJobRequest(job_json=job.canonical_json()), timeout=self._call_s
        )

    async def watch(self, job: str) -> AsyncIterator[JobEvent]:
        """Yield the events of a job, from its first on, until it has ended."""
        async for event in self.stub.WatchJob(JobReference(job=job), timeout=HELD_OPEN):
            yield event

    async def jobs(self) -> list[JobRecord]:
        """Return all jobs that the service knows."""
        return list((await self.stub.ListJobs(ListJobsRequest(), timeout=self._call_s)).jobs)

    async def show(self, job: str) -> JobRecord:
        """Return a job's record."""
        return await self.stub.ShowJob(JobReference(job=job), timeout=self._call_s)

    async def trained(self, job: str) -> JobRecord:
        """Return a job's record, or that of the newest one of a name that has finished, if one has."""
        newest = await self.show(job)
        if newest.status == JOB_FINISHED or newest.job_id == job:
            return newest
        finished = (one for one in await self.jobs() if one.name == job and one.status == JOB_FINISHED)
        return max(finished, key=lambda one: one.submitted_unix_s, default=newest)

    async def cancel(self, job: str) -> JobRecord:
        """End a job; return its record."""
        return await self.stub.CancelJob(JobReference(job=job), timeout=self._call_s)

    async def score(self, job: str, dataset: str, ids: Sequence[str]) -> ScoreIdsReply:
        """Return the scores of a few rows; the first request for a model and a data set aligns them."""
        request = ScoreIdsRequest(job=job, dataset=dataset, ids=ids)
        return await self.stub.ScoreIds(request, timeout=self.config.deadlines.step_s)

    async def fetch(self, job: str, folder: Path) -> tuple[Path, ...]:
        """Write a job's artifacts into a folder, each complete or not at all; return their paths."""
        paths: list[Path] = []
        name, content = "", bytearray()
        async for chunk in self.stub.FetchArtifacts(
            JobReference(job=job), timeout=self.config.deadlines.step_s
        ):
            if chunk.name != name and name:
                paths.append(_written(folder, name, content))
                content = bytearray()
            name = chunk.name
            content += chunk.content
        if name:
            paths.append(_written(folder, name, content))
        return tuple(paths)

    @property
    def _call_s(self) -> float:
        return self.config.deadlines.call_s


@asynccontextmanager
async def operating(config: PartyConfig) -> AsyncIterator[Operator]:
    """Connect to the service of the active party whose party file this is.

    Raises:
        ConfigError: It is the file of another role, or names no port to dial.
    """
    if config.role != "active":
        raise ConfigError(
            f"jobs are run by the active party, but {config.party} has the role {config.role}",
            advice="Name the active party's file with -p.",
        )
    address = config.dial_address
    if address.endswith(":0"):
        raise ConfigError(
            f"{config.party} listens on any free port, so nobody knows where to dial",
            where=f"listen: {config.listen}",
            advice="Give `listen` a port, or set `advertise` to the address in use.",
        )
    channel = open_channel(config.party, address, config.party, config.security, Wiretap())
    own = f"{config.party} at {address}"
    try:
        yield Operator(config, ActivePartyStub(channel))
    except PeerUnreachable as exc:
        if exc.where != own:
            raise
        advice = f"{exc.advice} `vfl serve -c` its party file starts it, `vfl check -c` says what is wrong."
        raise PeerUnreachable(exc.what, where=own, advice=advice.strip()) from exc
    finally:
        await channel.close()


def raise_if_unsuccessful(record: JobRecord) -> None:
    """Raise the error that a job ended with; nothing when it finished."""
    if record.status not in (JOB_FAILED, JOB_CANCELLED):
        return
    detail = record.error
    kind = getattr(common.errors, detail.error, JobError)
    if not (isinstance(kind, type) and issubclass(kind, ColonnadeError)) or kind is ConfigError:
        # A job that fails after its submission is a failed job, whatever the cause: exit code 1.
        kind = JobError
    if record.status == JOB_CANCELLED:
        kind = JobCancelled
    where = f"job {record.job_id}" + (f", {detail.where}" if detail.where else "")
    raise kind(detail.what or f"job {record.job_id} ended without a model", where=where, advice=detail.advice)


def made_folder(folder: Path) -> Path:
    """Make the folder for results, before anything is started.

    Raises:
        ConfigError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigError(
            f"the folder cannot be made: {exc.strerror}",
            where=str(folder),
            advice="Choose another place, or make room there.",
        ) from exc
    return folder


def _written(folder: Path, name: str, content: bytearray) -> Path:
    # The names come over the wire: a name with a slash would let the service write anywhere.
    if not _ARTIFACT_NAME.fullmatch(name):
        raise RemoteProtocolError("the service sent an artifact whose name is no plain file name")
    return write_result(folder / name, bytes(content))


def write_result(target: Path, content: bytes) -> Path:
    """Write a file that somebody asked for; return its path.

    Raises:
        JobError: The disk does not take it.
    """
    try:
        write_atomically(target, content)
    except OSError as exc:
        raise JobError(
            f"the file cannot be written: {exc.strerror}",
            where=str(target),
            advice="The job itself has ended well. Make room, or choose another place: "
            "`vfl show JOB --out DIR` fetches its files again.",
        ) from exc
    return target
