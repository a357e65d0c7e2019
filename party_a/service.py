"""A passive party's service (protos/vfl/v1/passive_party.proto)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor

from common.data.table import Table
from common.errors import ColonnadeError, RemoteProtocolError
from common.rpc.greeting import check_caller, make_greeting
from common.rpc.identity import Context, caller
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb.passive_party_pb2 import DESCRIPTOR
from common.rpc.pb.passive_party_pb2_grpc import add_PassivePartyServicer_to_server
from common.rpc.server import PartyServer
from common.rpc.wiretap import Tap, Wiretap
from common.runtime.alignment_cache import AlignmentCache
from common.runtime.config_job import JobConfig
from common.runtime.config_party import PartyConfig
from common.runtime.coordinator_client import CoordinatorClient
from common.runtime.hosting import Ending, HostedJob, JobHost
from common.runtime.linear_design import alignment_key, id_rule, plain_design, read_dataset
from common.runtime.state import JobStore
from party_a.align_calls import AlignmentCalls, OwnIds
from party_a.align_service import AlignServicer
from party_a.he_gram_calls import GramCalls
from party_a.he_gram_service import GramServicer, first_of
from party_a.he_linear_calls import LinearCalls
from party_a.regression_calls import RegressionCalls

log = logging.getLogger("vfl.party_a")

Job = HostedJob[RegressionCalls]


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
        self._host: JobHost[RegressionCalls] = JobHost(own, self._on_end)

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
        table = await asyncio.to_thread(read_dataset, self._own, job)
        alignment = AlignmentCalls(
            await asyncio.to_thread(_own_ids, self._own, job, table),
            AlignmentCache(self._own.state),
            self._executor,
        )
        reply = pb.OpenJobReply(
            turn=request.turn,
            greeting=make_greeting(self._own.party, self._own.role),
            rows=table.rows,
            id_rule=id_rule(self._own, job),
            alignment_kept=await alignment.kept(request.alignment_id),
        )
        if request.preflight:
            design = await asyncio.to_thread(plain_design, table, job)
            reply.columns = design.columns
            return reply
        coordinator = CoordinatorClient(self._own, job, request.turn, self._wiretap)
        kind = GramCalls if job.uses_gram else LinearCalls
        calls = kind(self._own.party, job, table, alignment, coordinator, self._executor)
        hosted = self._host.add(request, job, calls)
        hosted.attendees.expect((party,))
        hosted.state.opened = asyncio.ensure_future(self._join(hosted, reply))
        return await self._opened(hosted, request.turn, party)

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

    async def _join(self, hosted: Job, reply: pb.OpenJobReply) -> pb.OpenJobReply:
        """Open the job at the coordinator too, and stay present there until the job ends."""
        try:
            await hosted.state.coordinator.open_job()
        except ColonnadeError as exc:
            await self._host.end(hosted, Ending(pb.FAILED, exc.what))
            raise
        hosted.state.attendance = asyncio.ensure_future(self._attend_coordinator(hosted))
        return reply

    async def _attend_coordinator(self, hosted: Job) -> None:
        try:
            await hosted.state.coordinator.attend()
        except ColonnadeError as exc:
            await self._host.end(hosted, Ending(pb.FAILED, exc.what))

    async def Attend(self, request: pb.Attendance, context: Context) -> AsyncIterator[pb.Presence]:  # noqa: N802
        async for presence in self._host.attend(request.turn, caller(context)):
            yield presence

    async def CloseJob(self, request: pb.CloseJobRequest, context: Context) -> pb.CloseJobReply:  # noqa: N802
        return await self._host.close(request, caller(context))

    async def Prepare(self, request: he.PrepareRequest, context: Context) -> he.PrepareReply:  # noqa: N802
        hosted = self._host.find(request.turn, caller(context))
        return await hosted.state.prepare(request)

    async def EncryptScores(  # noqa: N802
        self, request: he.ScoresRequest, context: Context
    ) -> AsyncIterator[he.EncryptedScores]:
        async for chunk in self._rowwise(request.turn, context).encrypt_scores(request):
            yield chunk

    async def ApplyResiduals(  # noqa: N802
        self, request: AsyncIterator[he.EncryptedResiduals], context: Context
    ) -> he.RoundApplied:
        first = await first_of(request)
        return await self._rowwise(first.turn, context).apply_residuals(first, request)

    async def SendPartialScores(  # noqa: N802
        self, request: he.PartialScoresRequest, context: Context
    ) -> AsyncIterator[he.PartialScores]:
        hosted = self._host.find(request.turn, caller(context))
        for chunk in hosted.state.partial_scores(request.turn):
            yield chunk

    def _rowwise(self, turn: pb.Turn, context: Context) -> LinearCalls:
        calls = self._host.find(turn, caller(context)).state
        if not isinstance(calls, LinearCalls):
            raise RemoteProtocolError("the job has Gram rounds")
        return calls

    async def _on_end(self, hosted: Job, ending: Ending) -> pb.CloseJobReply:
        """Keep the model of a job that finished, the record of any job, and let go of the coordinator."""
        calls = hosted.state
        await calls.leave()
        model_digest = ""
        if ending.outcome == pb.FINISHED:
            model = calls.model(hosted.job_id, ending.rounds)
            path = await asyncio.to_thread(self._store.write_json, hosted.job_id, "model.json", model)
            model_digest = hashlib.sha256(path.read_bytes()).hexdigest()
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
        }
        await asyncio.to_thread(self._store.write_json, hosted.job_id, "status.json", record)
        return pb.CloseJobReply(
            turn=pb.Turn(job_id=hosted.job_id, job_digest=hosted.digest, round=ending.rounds),
            sent_bytes=traffic.sent_bytes,
            received_bytes=traffic.received_bytes,
            seconds=seconds,
            model_digest=model_digest,
        )


def _own_ids(own: PartyConfig, job: JobConfig, table: Table) -> OwnIds:
    return OwnIds(
        party=own.party,
        others=tuple(party for party in (job.active, *job.passive) if party != own.party),
        ids=table.ids,
        key=alignment_key(own, job, table.ids),
        least_common=own.policy.least_common,
    )
