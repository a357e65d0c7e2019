"""The active party's service: job control for its own operator (protos/vfl/v1/active_party.proto)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor

from pydantic import ValidationError

from common.errors import JobError, RemoteProtocolError, UnknownJob
from common.rpc.chunks import CHUNK_BYTES
from common.rpc.greeting import check_caller, make_greeting
from common.rpc.identity import Context, caller, require_caller
from common.rpc.pb import active_party_pb2 as pb
from common.rpc.pb.active_party_pb2_grpc import ActivePartyServicer, add_ActivePartyServicer_to_server
from common.rpc.pb.job_pb2 import Greeting
from common.rpc.pb.passive_party_pb2 import DESCRIPTOR as PASSIVE
from common.rpc.pb.passive_party_pb2_grpc import add_PassivePartyServicer_to_server
from common.rpc.pb.vfb2_pb2 import DESCRIPTOR as VFB2
from common.rpc.pb.vfb2_pb2_grpc import add_Vfb2Servicer_to_server
from common.rpc.server import PartyServer
from common.rpc.wiretap import Tap, Wiretap
from common.runtime.config.job_kinds import job_from_json
from common.runtime.config.party import PartyConfig
from common.runtime.config.predict import PredictJob, prediction_name
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.guest.service import GuestTools
from common.runtime.state import JobStore
from party_b.asynchronous.desk import ConductedDesk
from party_b.asynchronous.guest import GuestServicer
from party_b.conduct import Desks, conduct
from party_b.job_life import Tools
from party_b.jobs import ActiveJob, JobBook
from party_b.regression.outcome import ARTIFACTS
from party_b.scoring_desk import ScoringDesk, ScoringSession


class ActiveService:
    """The active party as its process runs it."""

    def __init__(self, own: PartyConfig, executor: Executor, taps: Sequence[Tap] = ()) -> None:
        """Create the service.

        Args:
            own: This party's configuration.
            executor: Where ciphertexts are computed.
            taps: Shown every message of this party, as the bytes on the wire.
        """
        tools = Tools(own, JobStore(own.state), executor, Wiretap(taps))

        desks = Desks(ScoringDesk(), ConductedDesk())

        async def conduct_one(job: ActiveJob) -> None:
            await conduct(job, tools, desks)

        self._book = JobBook(own, tools.store, conduct_one)
        self._server = PartyServer(own.party, own.listen, own.security, tools.wiretap, tuple(own.peers))
        servicer = _Servicer(own, tools.store, self._book, desks.scoring)
        self._server.add(
            add_ActivePartyServicer_to_server, servicer, pb.DESCRIPTOR.services_by_name["ActiveParty"]
        )
        # The calls of encrypted regression stay unimplemented here: an active party conducts those itself.
        self._guest = GuestServicer(  # type: ignore[abstract]
            GuestTools(own, tools.store, executor, tools.wiretap)
        )
        self._server.add(
            add_PassivePartyServicer_to_server, self._guest, PASSIVE.services_by_name["PassiveParty"]
        )
        training = self._guest.training(desks.training)
        self._server.add(add_Vfb2Servicer_to_server, training, VFB2.services_by_name["Vfb2"])

    async def start(self) -> str:
        """Remember earlier jobs, and begin to listen; return the bound address."""
        await self._book.recall()
        return await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """End all jobs and stop listening."""
        await self._book.cancel_all()
        await self._guest.stop()
        await self._server.stop(grace_s)


class _Servicer(ActivePartyServicer):
    """Checks that the operator calls, and hands on to the job book."""

    def __init__(self, own: PartyConfig, store: JobStore, book: JobBook, desk: ScoringDesk) -> None:
        self._own = own
        self._desk = desk
        self._store = store
        self._book = book

    async def Greet(self, request: Greeting, context: Context) -> Greeting:  # noqa: N802 (gRPC's name)
        check_caller(request, caller(context))
        return make_greeting(self._own.party, self._own.role)

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Context) -> pb.JobRecord:  # noqa: N802
        self._require_operator(context)
        return self._book.submit(job_from_json(request.job_json)).record()

    async def WatchJob(self, request: pb.JobReference, context: Context) -> AsyncIterator[pb.JobEvent]:  # noqa: N802
        self._require_operator(context)
        async for event in self._book.find(request.job).watch():
            yield event

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.JobList:  # noqa: N802
        self._require_operator(context)
        return pb.JobList(jobs=[job.record() for job in self._book.all()])

    async def ShowJob(self, request: pb.JobReference, context: Context) -> pb.JobRecord:  # noqa: N802
        self._require_operator(context)
        return self._book.find(request.job).record()

    async def CancelJob(self, request: pb.JobReference, context: Context) -> pb.JobRecord:  # noqa: N802
        self._require_operator(context)
        job = self._book.find(request.job)
        await self._book.cancel(job, f"the operator of {self._own.party} asked for that")
        return job.record()

    async def FetchArtifacts(  # noqa: N802
        self, request: pb.JobReference, context: Context
    ) -> AsyncIterator[pb.ArtifactChunk]:
        self._require_operator(context)
        job = self._book.find(request.job)
        if job.status != pb.JOB_FINISHED:
            raise JobError(
                f"job {job.job_id} has left no report: it is {pb.JobStatus.Name(job.status).lower()}"
            )
        for name in ARTIFACTS:
            try:
                content = self._store.read_bytes(job.job_id, name)
            except UnknownJob:
                continue  # A job without test rows has no predictions for them.
            for start in range(0, max(1, len(content)), CHUNK_BYTES):
                yield pb.ArtifactChunk(name=name, content=content[start : start + CHUNK_BYTES])

    async def ScoreIds(self, request: pb.ScoreIdsRequest, context: Context) -> pb.ScoreIdsReply:  # noqa: N802
        self._require_operator(context)
        trained = self._book.find_trained(request.job)
        session = self._desk.find(trained.job_id, request.dataset)
        if session is None:
            session = await self._begin_session(trained, request.dataset)
        return await session.score(request.ids)

    async def _begin_session(self, trained: ActiveJob, dataset: str) -> ScoringSession:
        """Start the standing job for a model and a data set unless it is starting already; wait for it."""
        wanted = _standing_job(trained, dataset)
        job = self._book.running(wanted) or self._book.submit(wanted)
        async for _ in job.watch():
            session = self._desk.find(wanted.model, dataset)
            if session is not None:
                return session
        raise job.cause or JobError(f"job {job.job_id} has ended before any row was asked for")

    def _require_operator(self, context: Context) -> None:
        """Job control is for whoever shows this party's own certificate."""
        require_caller(context, (self._own.party,))


def _standing_job(trained: ActiveJob, dataset: str) -> PredictJob:
    """Return the job that keeps rows of a data set at hand for the model that another job trained.

    Raises:
        RemoteProtocolError: The operator's request names something that is no data set.
    """
    config = trained.config
    values = {
        "job": prediction_name(config.job),
        "algorithm": "predict",
        "active": config.active,
        "also_active": list(config.also_active) if isinstance(config, Vfb2Job) else [],
        "passive": list(config.scorers),
        "model": trained.job_id,
        "data": {"dataset": dataset},
        "mode": "online",
    }
    try:
        return PredictJob.model_validate_json(json.dumps(values))
    except ValidationError as exc:
        raise RemoteProtocolError("the request does not name a data set") from exc
