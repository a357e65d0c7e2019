"""A passive party's service (protos/vfl/v1/passive_party.proto)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor
from functools import partial

from common.errors import ColonnadeError, UnknownJob
from common.rpc.identity import Context
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb.passive_party_pb2 import DESCRIPTOR
from common.rpc.pb.passive_party_pb2_grpc import add_PassivePartyServicer_to_server
from common.rpc.pb.vfb2_pb2 import DESCRIPTOR as VFB2
from common.rpc.pb.vfb2_pb2_grpc import add_Vfb2Servicer_to_server
from common.rpc.server import PartyServer
from common.rpc.wiretap import Tap, Wiretap
from common.runtime.checkpoint import Checkpoint
from common.runtime.config.job import JobConfig
from common.runtime.config.job_kinds import Job
from common.runtime.config.networks import NetJob
from common.runtime.config.party import PartyConfig
from common.runtime.config.predict import PredictJob
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.coordinator_client import CoordinatorClient
from common.runtime.guest.quota import DailyQuota
from common.runtime.guest.service import GuestTools, Hosted
from common.runtime.hosting import is_loss
from common.runtime.linear_design import plain_design, read_dataset
from common.runtime.net_design import net_rows
from common.runtime.net_halves import require_networks
from common.runtime.state import JobStore
from common.runtime.unfinished import Ending
from common.runtime.vfb2.guest_service import Vfb2Guest
from party_a.he_gram_calls import GramCalls
from party_a.he_gram_service import GramServicer, first_of
from party_a.he_linear_calls import LinearCalls
from party_a.net_calls import NetCalls, NetTools
from party_a.net_predict_calls import NetPredictionCalls, net_scorable
from party_a.regression_calls import RegressionCalls, Workplace
from party_a.splitnn_service import SplitServicer
from party_a.vfb2_guarded_calls import calls_of

log = logging.getLogger("vfl.party_a")


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
        self._servicer = _Servicer(GuestTools(own, JobStore(own.state), executor, wiretap))
        self._server = PartyServer(own.party, own.listen, own.security, wiretap, tuple(own.peers))
        self._server.add(
            add_PassivePartyServicer_to_server, self._servicer, DESCRIPTOR.services_by_name["PassiveParty"]
        )
        self._server.add(add_Vfb2Servicer_to_server, self._servicer.training(), VFB2.services_by_name["Vfb2"])

    async def start(self) -> str:
        """Remember jobs that were left unfinished, and begin to listen; return the bound address."""
        await self._servicer.recall()
        return await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """End all jobs and stop listening."""
        await self._servicer.stop()
        await self._server.stop(grace_s)


class _Servicer(Vfb2Guest, GramServicer, SplitServicer):
    """Adds encrypted regression and split networks to what every guest of VFB² answers."""

    async def _open_training(self, request: pb.OpenJobRequest, job: Job) -> pb.OpenJobReply:
        if isinstance(job, JobConfig):
            return await self._open_regression(request, job)
        if isinstance(job, NetJob):
            return await self._open_network(request, job)
        if isinstance(job, Vfb2Job):
            return await self.open_vfb2(request, job, calls_of(job))
        return await super()._open_training(request, job)

    async def _open_regression(self, request: pb.OpenJobRequest, job: JobConfig) -> pb.OpenJobReply:
        own = self._own
        table = await asyncio.to_thread(read_dataset, own, job)
        alignment = await self._alignment(job, table.ids, own.policy.least_common)
        reply = await self._opening(request, job, table, alignment)
        if request.preflight:
            design = await asyncio.to_thread(plain_design, table, job)
            reply.columns = design.columns
            return reply
        coordinator = CoordinatorClient(own, job, request.turn, self._tools.wiretap)
        kind = GramCalls if job.uses_gram else LinearCalls
        tools, job_id = self._tools, request.turn.job_id
        place = Workplace(
            tools.executor, Checkpoint.of(tools.store, job_id), lambda: tools.wiretap.totals(job_id)
        )
        calls = kind(own.party, job, table, alignment, coordinator, place)
        calls.opened = asyncio.ensure_future(self._join(request, job, calls, reply))
        return await self._opened(calls, request.turn, job.active)

    async def _open_network(self, request: pb.OpenJobRequest, job: NetJob) -> pb.OpenJobReply:
        own, store = self._own, self._tools.store
        require_networks(own.party)
        rows = await asyncio.to_thread(net_rows, own, job)
        alignment = await self._alignment(job, rows.head.ids, own.policy.least_common)
        reply = await self._opening(request, job, rows.head, alignment)
        if request.preflight:
            reply.columns = len(rows.features)
            return reply
        job_id = request.turn.job_id
        tools = NetTools(own, store, job_id, partial(self._tools.wiretap.totals, job_id))
        calls = NetCalls(job, rows, alignment, tools)
        hosted = await self._host.add(request, job, calls)
        hosted.attendees.expect((job.active,))
        calls.opened.set_result(reply)
        return reply

    async def _open_network_prediction(
        self, request: pb.OpenJobRequest, job: PredictJob, least: int, quota: DailyQuota
    ) -> pb.OpenJobReply:
        require_networks(self._own.party)
        found = await asyncio.to_thread(net_scorable, self._own, job, self._tools.store, least)
        table = found.rows.head.table
        alignment = await self._alignment(job, table.ids, least)
        reply = await self._opening(request, job, table, alignment)
        reply.model_digest = found.network.digest
        if request.preflight:
            reply.columns = len(found.network.saved.plan.names)
            return reply
        folder = Checkpoint.of(self._tools.store, request.turn.job_id).folder / "rows"
        hosted = await self._host.add(request, job, NetPredictionCalls(job, found, alignment, quota, folder))
        hosted.attendees.expect((job.active,))
        hosted.state.opened.set_result(reply)
        return reply

    async def _join(
        self, request: pb.OpenJobRequest, job: JobConfig, calls: RegressionCalls, reply: pb.OpenJobReply
    ) -> pb.OpenJobReply:
        """Open the job here and at the coordinator, and stay present there until the job ends."""
        hosted = await self._host.add(request, job, calls)
        hosted.attendees.expect((job.active,))
        try:
            await calls.coordinator.open_job()
        except ColonnadeError as exc:
            if not is_loss(job, exc):
                await self._host.end(hosted, Ending(pb.FAILED, exc.what))
            raise
        calls.attendance = asyncio.ensure_future(self._attend_coordinator(hosted, calls))
        return reply

    async def _attend_coordinator(self, hosted: Hosted, calls: RegressionCalls) -> None:
        try:
            await calls.coordinator.attend()
        except UnknownJob as exc:
            # The coordinator was restarted, or the active party has opened the job again there already.
            if hosted.config.resumes:
                await asyncio.sleep(self._own.deadlines.peer_s)
            await self._host.end(hosted, Ending(pb.FAILED, exc.what))
        except ColonnadeError as exc:
            await self._host.end(hosted, Ending(pb.FAILED, exc.what))

    async def BuildDesign(self, request: he.BuildDesignRequest, context: Context) -> he.BuildDesignReply:  # noqa: N802
        calls = self._calls(RegressionCalls, request.turn, context)
        rows = calls.alignment.rows(request.alignment_id, request.rows)
        return await calls.build_design(request.turn, rows)

    async def Prepare(self, request: he.PrepareRequest, context: Context) -> he.PrepareReply:  # noqa: N802
        return await self._calls(RegressionCalls, request.turn, context).prepare(request)

    async def Stand(self, request: he.StandingRequest, context: Context) -> he.Standing:  # noqa: N802
        return await self._calls(RegressionCalls, request.turn, context).stand(request.turn)

    async def GoOn(self, request: he.GoOnRequest, context: Context) -> he.GoneOn:  # noqa: N802
        return await self._calls(RegressionCalls, request.turn, context).go_on(request)

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
        async for chunk in self._calls(RegressionCalls, request.turn, context).partial_scores(request.turn):
            yield chunk
