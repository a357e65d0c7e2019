"""A party's service in jobs that another one conducts: opened, attended, aligned, asked for scores, closed.

Passive parties always are such guests; active ones are in jobs of several active parties (VFB²). What a job's
algorithm asks for besides is added by the party's own package.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from dataclasses import dataclass

from common.data.table import Table
from common.errors import LocalProtocolError, Refused
from common.rpc.greeting import check_caller, make_greeting
from common.rpc.identity import Context, caller
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb import predict_pb2 as predict
from common.rpc.wiretap import Wiretap
from common.runtime.alignment_cache import AlignmentCache
from common.runtime.config.job_base import JobBase
from common.runtime.config.job_kinds import Job
from common.runtime.config.party import PartyConfig
from common.runtime.config.predict import PredictJob
from common.runtime.guest.align_calls import AlignmentCalls, OwnIds
from common.runtime.guest.align_service import AlignServicer
from common.runtime.guest.job_calls import JobCalls
from common.runtime.guest.predict_calls import PredictionCalls, scorable
from common.runtime.guest.quota import DailyQuota
from common.runtime.hosting import HostedJob, JobHost
from common.runtime.linear_design import alignment_key, id_rule
from common.runtime.saved_network import is_network
from common.runtime.state import MODEL_FILE, STATUS_FILE, JobStore
from common.runtime.unfinished import Ending, closing_reply, ending_record

Hosted = HostedJob[JobCalls]


@dataclass(frozen=True, slots=True)
class GuestTools:
    """What every job of others uses at this party."""

    own: PartyConfig
    store: JobStore
    executor: Executor
    wiretap: Wiretap


class GuestServicer(AlignServicer):
    """Checks identity and turn, converts, calls the job's own state, converts."""

    def __init__(self, tools: GuestTools) -> None:
        own = tools.own
        self._tools = tools
        self._own = own
        self._host: JobHost[JobCalls] = JobHost(own, self._on_end, self._on_superseded)
        agreed = own.policy.prediction
        self._quota = None if agreed is None else DailyQuota(own.state, agreed.rows_per_day)

    async def recall(self) -> None:
        """Expect the parties of jobs that an earlier run of the service left unfinished."""
        await self._host.recall()

    async def stop(self) -> None:
        """End all jobs, because the service stops."""
        await self._host.end_all(f"{self._own.party} is shutting down")

    async def Greet(self, request: pb.Greeting, context: Context) -> pb.Greeting:  # noqa: N802 (gRPC's name)
        check_caller(request, caller(context))
        return make_greeting(self._own.party, self._own.role)

    async def OpenJob(self, request: pb.OpenJobRequest, context: Context) -> pb.OpenJobReply:  # noqa: N802
        party = caller(context)
        job = self._host.admit(request, party)
        hosted = await self._host.known(request.turn, party)
        if hosted is not None:
            return await self._opened(hosted.state, request.turn, party)
        if isinstance(job, PredictJob):
            return await self._open_prediction(request, job)
        return await self._open_training(request, job)

    async def Attend(self, request: pb.Attendance, context: Context) -> AsyncIterator[pb.Presence]:  # noqa: N802
        async for presence in self._host.attend(request.turn, caller(context)):
            yield presence

    async def CloseJob(self, request: pb.CloseJobRequest, context: Context) -> pb.CloseJobReply:  # noqa: N802
        return await self._host.close(request, caller(context))

    async def ScoreRows(  # noqa: N802
        self, request: predict.ScoreRowsRequest, context: Context
    ) -> AsyncIterator[he.PartialScores]:
        async for chunk in self._calls(PredictionCalls, request.turn, context).score_rows(request):
            yield chunk

    async def _open_training(self, request: pb.OpenJobRequest, job: Job) -> pb.OpenJobReply:
        """Open a job that trains; the party's own package knows which ones there are.

        Raises:
            Refused: This party has no part in jobs of this algorithm.
        """
        raise Refused(f"the algorithm {job.algorithm} has no part for {self._own.party}")

    async def _opened(self, calls: JobCalls, turn: pb.Turn, party: str) -> pb.OpenJobReply:
        """Return the answer to an opening; whoever gives up waiting for it leaves it to others.

        Raises:
            UnknownJob: The job ended before it was open, which broke the call to the coordinator off.
        """
        opened = calls.opened
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
        if is_network(self._tools.store, job.model):
            return await self._open_network_prediction(request, job, agreed.min_rows, quota)
        found = await asyncio.to_thread(scorable, own, job, self._tools.store, agreed.min_rows)
        table = found.rows.table
        alignment = await self._alignment(job, table.ids, agreed.min_rows)
        reply = await self._opening(request, job, table, alignment)
        reply.model_digest = found.digest
        if request.preflight:
            reply.columns = len(found.model.coefficients)
            return reply
        hosted = await self._host.add(request, job, PredictionCalls(job, found, alignment, quota))
        hosted.attendees.expect((job.active,))
        hosted.state.opened.set_result(reply)
        return reply

    async def _open_network_prediction(
        self, request: pb.OpenJobRequest, job: PredictJob, least: int, quota: DailyQuota
    ) -> pb.OpenJobReply:
        """Open a prediction with a network; the party's own package knows how.

        Raises:
            Refused: This party has no part in scoring with networks.
        """
        raise Refused(f"{self._own.party} does not score with networks")

    async def _alignment(self, job: JobBase, ids: tuple[str, ...], least_common: int) -> AlignmentCalls:
        own = OwnIds(
            party=self._own.party,
            others=tuple(party for party in (job.active, *job.guests) if party != self._own.party),
            ids=ids,
            key=await asyncio.to_thread(alignment_key, self._own, job, ids),
            least_common=least_common,
        )
        return AlignmentCalls(own, AlignmentCache(self._own.state), self._tools.executor)

    async def _opening(
        self, request: pb.OpenJobRequest, job: JobBase, table: Table, alignment: AlignmentCalls
    ) -> pb.OpenJobReply:
        if job.resumes:
            alignment.pin_in(self._tools.store.checkpoint_dir(request.turn.job_id))
        return pb.OpenJobReply(
            turn=request.turn,
            greeting=make_greeting(self._own.party, self._own.role),
            rows=table.rows,
            id_rule=id_rule(self._own, job),
            alignment_kept=await alignment.kept(request.alignment_id),
        )

    async def _on_superseded(self, hosted: Hosted) -> None:
        """Let go of an earlier attempt: its connections, not its files."""
        await hosted.state.leave()
        self._tools.wiretap.forget(hosted.job_id)

    async def _on_end(self, hosted: Hosted, ending: Ending) -> pb.CloseJobReply:
        """Keep the model of a job that finished, and the record of any job, and let go of what it holds."""
        calls, wiretap = hosted.state, self._tools.wiretap
        await calls.leave()
        model_digest = ""
        if ending.outcome == pb.FINISHED:
            model_digest = await self._keep_model(hosted, ending.rounds)
        spent = calls.spent(wiretap.totals(hosted.job_id))
        wiretap.forget(hosted.job_id)
        record = ending_record(hosted.config, ending, spent)
        record |= {"model_digest": model_digest, "unseen": calls.unseen(), "notes": calls.notes()}
        await asyncio.to_thread(self._tools.store.write_json, hosted.job_id, STATUS_FILE, record)
        reply = closing_reply(hosted.job_id, hosted.config, ending, spent, model_digest)
        reply.unseen.extend(calls.unseen())
        return reply

    async def _keep_model(self, hosted: Hosted, rounds: int) -> str:
        """Keep this party's part of the model; return the digest of its file, empty without a model."""
        model = hosted.state.model(hosted.job_id, rounds)
        if model is None:
            return ""
        path = await asyncio.to_thread(self._tools.store.write_json, hosted.job_id, MODEL_FILE, model)
        return hashlib.sha256(path.read_bytes()).hexdigest()
