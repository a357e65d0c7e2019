"""A passive party's service (protos/vfl/v1/passive_party.proto)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor

from common.data.table import Table
from common.errors import ColonnadeError, LocalProtocolError, Refused
from common.rpc.greeting import check_caller, make_greeting
from common.rpc.identity import Context, caller
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb import predict_pb2 as predict
from common.rpc.pb.passive_party_pb2 import DESCRIPTOR
from common.rpc.pb.passive_party_pb2_grpc import add_PassivePartyServicer_to_server
from common.rpc.server import PartyServer
from common.rpc.wiretap import Tap, Wiretap
from common.runtime.alignment_cache import AlignmentCache
from common.runtime.config_job import JobConfig
from common.runtime.config_job_base import JobBase
from common.runtime.config_party import PartyConfig
from common.runtime.config_predict import PredictJob
from common.runtime.coordinator_client import CoordinatorClient
from common.runtime.hosting import Ending, HostedJob, JobHost
from common.runtime.linear_design import alignment_key, id_rule, plain_design, read_dataset
from common.runtime.saved_model import MODEL_FILE
from common.runtime.state import STATUS_FILE, JobStore
from party_a.align_calls import AlignmentCalls, OwnIds
from party_a.align_service import AlignServicer
from party_a.he_gram_calls import GramCalls
from party_a.he_gram_service import GramServicer, first_of
from party_a.he_linear_calls import LinearCalls
from party_a.job_calls import JobCalls
from party_a.predict_calls import PredictionCalls, scorable
from party_a.quota import DailyQuota
from party_a.regression_calls import RegressionCalls

log = logging.getLogger("vfl.party_a")

Job = HostedJob[JobCalls]


class PassiveService:
    """A passive party as its process runs it."""

    def __init__(self, own: PartyConfig, executor: Executor, taps: Sequence[Tap] = ()) -> None:
        """Create the service.

        Args:
            own: This party's configuration.
            executor: Where ciphertexts are computed.
            taps: Shown every message of this party, as the bytes on the wire.
        """
        wiretap = Wiretap(taps)
        self._servicer = _Servicer(own, executor, wiretap)
        self._server = PartyServer(own.party, own.listen, own.security, wiretap, tuple(own.peers))
        self._server.add(
            add_PassivePartyServicer_to_server, self._servicer, DESCRIPTOR.services_by_name["PassiveParty"]
        )

    async def start(self) -> str:
        """Begin to listen; return the bound address."""
        return await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """End all jobs and stop listening."""
        await self._servicer.stop()
        await self._server.stop(grace_s)


class _Servicer(AlignServicer, GramServicer):
    """Checks identity and turn, converts, calls the role, converts."""

    def __init__(self, own: PartyConfig, executor: Executor, wiretap: Wiretap) -> None:
        self._own = own
        self._executor = executor
        self._wiretap = wiretap
        self._store = JobStore(own.state)
        self._host: JobHost[JobCalls] = JobHost(own, self._on_end)
        agreed = own.policy.prediction
        self._quota = None if agreed is None else DailyQuota(own.state, agreed.rows_per_day)

    async def stop(self) -> None:
        """End all jobs, because the service stops."""
        await self._host.end_all(f"{self._own.party} is shutting down")

    async def Greet(self, request: pb.Greeting, context: Context) -> pb.Greeting:  # noqa: N802 (gRPC's name)
        check_caller(request, caller(context))
        return make_greeting(self._own.party, self._own.role)

    async def OpenJob(self, request: pb.OpenJobRequest, context: Context) -> pb.OpenJobReply:  # noqa: N802
        party = caller(context)
        job = self._host.admit(request, party)
        hosted = self._host.known(request.turn, party)
        if hosted is not None:
            return await self._opened(hosted, request.turn, party)
        if isinstance(job, PredictJob):
            return await self._open_prediction(request, job)
        if not isinstance(job, JobConfig):
            raise Refused(f"the algorithm {job.algorithm} has no part for {self._own.party}")
        return await self._open_regression(request, job)

    async def _open_regression(self, request: pb.OpenJobRequest, job: JobConfig) -> pb.OpenJobReply:
        table = await asyncio.to_thread(read_dataset, self._own, job)
        alignment = await self._alignment(job, table.ids, self._own.policy.least_common)
        reply = await self._opening(request, job, table, alignment)
        if request.preflight:
            design = await asyncio.to_thread(plain_design, table, job)
            reply.columns = design.columns
            return reply
        coordinator = CoordinatorClient(self._own, job, request.turn, self._wiretap)
        kind = GramCalls if job.uses_gram else LinearCalls
        calls = kind(self._own.party, job, table, alignment, coordinator, self._executor)
        hosted = self._host.add(request, job, calls)
        hosted.attendees.expect((job.active,))
        calls.opened = asyncio.ensure_future(self._join(hosted, calls, reply))
        return await self._opened(hosted, request.turn, job.active)

    async def _opened(self, hosted: Job, turn: pb.Turn, party: str) -> pb.OpenJobReply:
        """Return the answer to an opening; whoever gives up waiting for it leaves it to others.

        Raises:
            UnknownJob: The job ended before it was open, which broke the call to the coordinator off.
        """
        opened = hosted.state.opened
        await asyncio.wait({opened})
        if opened.cancelled():
            self._host.find(turn, party)
        return opened.result()

    async def _open_prediction(self, request: pb.OpenJobRequest, job: PredictJob) -> pb.OpenJobReply:
        own, agreed, quota = self._own, self._own.policy.prediction, self._quota
        if agreed is None or quota is None:
            raise LocalProtocolError("a prediction was admitted against the policy")
        if quota.left(job.active) < 1:
            raise Refused(
                f"the policy of {own.party} allows {agreed.rows_per_day:,} scored rows a day for "
                f"{job.active}, and none is left today",
                advice="Wait for tomorrow (UTC), or ask for a higher policy.prediction.rows_per_day.",
            )
        found = await asyncio.to_thread(scorable, own, job, self._store, agreed.min_rows)
        table = found.rows.table
        alignment = await self._alignment(job, table.ids, agreed.min_rows)
        reply = await self._opening(request, job, table, alignment)
        reply.model_digest = found.digest
        if request.preflight:
            reply.columns = len(found.model.coefficients)
            return reply
        hosted = self._host.add(request, job, PredictionCalls(job, found, alignment, quota))
        hosted.attendees.expect((job.active,))
        hosted.state.opened.set_result(reply)
        return reply

    async def _alignment(self, job: JobBase, ids: tuple[str, ...], least_common: int) -> AlignmentCalls:
        own = OwnIds(
            party=self._own.party,
            others=tuple(party for party in (job.active, *job.passive) if party != self._own.party),
            ids=ids,
            key=await asyncio.to_thread(alignment_key, self._own, job, ids),
            least_common=least_common,
        )
        return AlignmentCalls(own, AlignmentCache(self._own.state), self._executor)

    async def _opening(
        self, request: pb.OpenJobRequest, job: JobBase, table: Table, alignment: AlignmentCalls
    ) -> pb.OpenJobReply:
        return pb.OpenJobReply(
            turn=request.turn,
            greeting=make_greeting(self._own.party, self._own.role),
            rows=table.rows,
            id_rule=id_rule(self._own, job),
            alignment_kept=await alignment.kept(request.alignment_id),
        )

    async def _join(self, hosted: Job, calls: RegressionCalls, reply: pb.OpenJobReply) -> pb.OpenJobReply:
        """Open the job at the coordinator too, and stay present there until the job ends."""
        try:
            await calls.coordinator.open_job()
        except ColonnadeError as exc:
            await self._host.end(hosted, Ending(pb.FAILED, exc.what))
            raise
        calls.attendance = asyncio.ensure_future(self._attend_coordinator(hosted, calls))
        return reply

    async def _attend_coordinator(self, hosted: Job, calls: RegressionCalls) -> None:
        try:
            await calls.coordinator.attend()
        except ColonnadeError as exc:
            await self._host.end(hosted, Ending(pb.FAILED, exc.what))

    async def Attend(self, request: pb.Attendance, context: Context) -> AsyncIterator[pb.Presence]:  # noqa: N802
        async for presence in self._host.attend(request.turn, caller(context)):
            yield presence

    async def CloseJob(self, request: pb.CloseJobRequest, context: Context) -> pb.CloseJobReply:  # noqa: N802
        return await self._host.close(request, caller(context))

    async def Prepare(self, request: he.PrepareRequest, context: Context) -> he.PrepareReply:  # noqa: N802
        return await self._calls(RegressionCalls, request.turn, context).prepare(request)

    async def EncryptScores(  # noqa: N802
        self, request: he.ScoresRequest, context: Context
    ) -> AsyncIterator[he.EncryptedScores]:
        async for chunk in self._calls(LinearCalls, request.turn, context).encrypt_scores(request):
            yield chunk

    async def ApplyResiduals(  # noqa: N802
        self, request: AsyncIterator[he.EncryptedResiduals], context: Context
    ) -> he.RoundApplied:
        first = await first_of(request)
        return await self._calls(LinearCalls, first.turn, context).apply_residuals(first, request)

    async def SendPartialScores(  # noqa: N802
        self, request: he.PartialScoresRequest, context: Context
    ) -> AsyncIterator[he.PartialScores]:
        for chunk in self._calls(RegressionCalls, request.turn, context).partial_scores(request.turn):
            yield chunk

    async def ScoreRows(  # noqa: N802
        self, request: predict.ScoreRowsRequest, context: Context
    ) -> AsyncIterator[he.PartialScores]:
        async for chunk in self._calls(PredictionCalls, request.turn, context).score_rows(request):
            yield chunk

    async def _on_end(self, hosted: Job, ending: Ending) -> pb.CloseJobReply:
        """Keep the model of a job that finished, the record of any job, and let go of the coordinator."""
        calls = hosted.state
        await calls.leave()
        model_digest = ""
        if ending.outcome == pb.FINISHED:
            model_digest = await self._keep_model(hosted, ending.rounds)
        traffic = self._wiretap.totals(hosted.job_id)
        self._wiretap.forget(hosted.job_id)
        seconds = dict(calls.watch.seconds)
        record = {
            "job": json.loads(hosted.config.canonical_json()),
            "outcome": pb.Outcome.Name(ending.outcome).lower(),
            "reason": ending.reason,
            "rounds": ending.rounds,
            "seconds": seconds,
            "sent_bytes": traffic.sent_bytes,
            "received_bytes": traffic.received_bytes,
            "notes": calls.notes(),
        }
        await asyncio.to_thread(self._store.write_json, hosted.job_id, STATUS_FILE, record)
        return pb.CloseJobReply(
            turn=pb.Turn(job_id=hosted.job_id, job_digest=hosted.digest, round=ending.rounds),
            sent_bytes=traffic.sent_bytes,
            received_bytes=traffic.received_bytes,
            seconds=seconds,
            model_digest=model_digest,
        )

    async def _keep_model(self, hosted: Job, rounds: int) -> str:
        """Keep this party's part of the model; return the digest of its file, empty without a model."""
        model = hosted.state.model(hosted.job_id, rounds)
        if model is None:
            return ""
        path = await asyncio.to_thread(self._store.write_json, hosted.job_id, MODEL_FILE, model)
        return hashlib.sha256(path.read_bytes()).hexdigest()
