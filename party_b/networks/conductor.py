"""Conducts jobs with networks from their opening to their report (protos/vfl/v1/job.proto, splitnn.proto).

Stage 1 trains split networks with A. Then A is released: it keeps its own network, and may go. Stage 2 trains
what is B's alone, and asks nobody. After a loss the job goes on with whatever is not on B's disk yet.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np

from common.data.scanned import Rows
from common.rpc.pb import job_pb2 as pb
from common.runtime.checkpoint import Checkpoint
from common.runtime.config.networks import NetJob
from common.runtime.epoch_store import EpochStore
from common.runtime.kept_data import hold_to_data
from common.runtime.net_design import net_rows
from common.runtime.net_halves import make_ready, require_networks
from common.runtime.state import MODEL_FILE
from party_b.job_life import JobLife, Tools, turn_of
from party_b.jobs import ActiveJob
from party_b.networks.client import NetClient
from party_b.networks.outcome import NetOutcome, active_half, student_model, write_net_artifacts
from party_b.networks.rows import ActiveRows, active_rows
from party_b.networks.stage_one import StageOne, StageOneConductor, kept_stage_one
from party_b.networks.students import StageTwo
from party_b.networks.teacher import TeacherShelf

_RELEASED = "released"


class NetConductor:
    """Conducts a job with networks, in one attempt."""

    def __init__(self, active: ActiveJob, job: NetJob, tools: Tools) -> None:
        self._active = active
        self._job = job
        self._tools = tools
        self._checkpoint = Checkpoint.of(tools.store, active.job_id)
        self._epochs = EpochStore(self._checkpoint)
        self._shelf = TeacherShelf(self._epochs)
        # Whoever was released is not asked, waited for or missed any more.
        asked = () if self._checkpoint.kept(_RELEASED) is not None else job.passive
        arguments = (tools.own, job, turn_of(active), tools.wiretap)
        self._clients = [NetClient(name, *arguments) for name in asked]
        self.life = JobLife(active, tools, self._clients)

    async def run(self) -> None:
        """Stage 1 with A, then stage 2 without, then the report."""
        own, job = self._tools.own, self._job
        require_networks(own.party)
        source = await asyncio.to_thread(net_rows, own, job)
        await asyncio.to_thread(hold_to_data, self._checkpoint, source.head, job.data.dataset)
        # Importing torch takes seconds, in which ids are aligned.
        ready = asyncio.ensure_future(asyncio.to_thread(make_ready))
        rows, found = await self._stage_one(source)
        await ready
        outcome = NetOutcome(self._active.job_id, job, rows, found)
        if job.passive:
            outcome.teachers = [await asyncio.to_thread(self._shelf.load, run) for run in job.runs]
            await self._release(outcome)
        stage_two = StageTwo(self._active, job, rows, self._tools, self.life)
        with self.life.timed("students"):
            outcome.students = await stage_two.run(outcome.teachers)
        with self.life.timed("evaluating"):
            await self._active.enter("evaluating", "measuring the models")
            if not job.scorers:
                model = await asyncio.to_thread(student_model, outcome, self._tools.store)
                self._tools.store.write_json(self._active.job_id, MODEL_FILE, model.to_json())
        outcome.seconds, outcome.computing = self.life.seconds, self.life.watch.seconds
        # What is counted for a job without anybody else went to our own operator.
        outcome.own_traffic = self.life.traffic() if job.passive else (0, 0)
        outcome.losses = tuple(self._active.losses)
        for notice in outcome.warnings():
            await self._active.warn(notice)
        await asyncio.to_thread(write_net_artifacts, outcome, self._tools.store)

    async def _stage_one(self, source: Rows) -> tuple[ActiveRows, StageOne]:
        own, job = self._tools.own, self._job
        kept = await asyncio.to_thread(kept_stage_one, self._epochs)
        if kept is None and job.passive:
            conductor = StageOneConductor(self._active, job, self._tools, self.life, self._clients)
            return await self.life.while_present(conductor.run(source))
        with self.life.timed("preparing"):
            await self._active.enter("preparing", "encoding rows")
            common = np.zeros(0, dtype=np.int64) if kept is None else kept.common
            rows = await asyncio.to_thread(active_rows, own, job, source, self._checkpoint.folder, common)
        if kept is None:
            kept = StageOne({own.party: source.head.rows}, {own.party: len(source.features)}, common)
        return rows, kept

    async def _release(self, outcome: NetOutcome) -> None:
        """Tell every passive party that its part is done: it keeps its own network, and may go."""
        store, job_id, job = self._tools.store, self._active.job_id, self._job
        kept = self._checkpoint.kept(_RELEASED)
        if kept is None:
            with self.life.timed("closing"):
                epoch = outcome.teachers[0].progress.best
                replies = await self.life.close(epoch)
                traffic = self.life.traffic()
                kept = {
                    "replies": {name: reply.SerializeToString().hex() for name, reply in replies.items()},
                    "traffic": list(traffic),
                }
                if job.scorers:
                    model = await asyncio.to_thread(active_half, outcome, epoch, store, self._shelf)
                    parts = {name: reply.model_digest for name, reply in replies.items()}
                    store.write_json(job_id, MODEL_FILE, replace(model, parts=parts).to_json())
                self._checkpoint.keep(_RELEASED, kept)
        outcome.replies = {
            name: pb.CloseJobReply.FromString(bytes.fromhex(reply)) for name, reply in kept["replies"].items()
        }
