"""Conducts jobs with networks from their opening to their report (protos/vfl/v1/job.proto, splitnn.proto).

Stage 1 trains split networks with A. In jpl and fpd A is then released, and stage 2 trains what is B's alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from common.runtime.config_net import NetJob, Run
from common.runtime.epoch_store import EpochStore, party_secret
from common.runtime.linear_design import read_dataset
from common.runtime.net_halves import Half, require_networks
from common.runtime.saved_model import MODEL_FILE
from party_b.alignment import Aligned
from party_b.job_life import JobLife, Opened, OwnRows, Tools, turn_of
from party_b.jobs import ActiveJob
from party_b.net_client import NetClient
from party_b.net_outcome import NetOutcome, own_part, write_net_artifacts
from party_b.net_rows import ActiveRows, active_rows
from party_b.net_teacher import Taught, TeacherShelf
from party_b.net_training import RunRows, SplitTraining, fetched


@dataclass(slots=True, eq=False)
class _Taught:
    """What stage 1 leaves."""

    rows: ActiveRows
    opened: Opened
    aligned: Aligned
    columns: dict[str, int] = field(default_factory=dict)


class NetConductor:
    """Conducts a job with networks."""

    def __init__(self, active: ActiveJob, job: NetJob, tools: Tools) -> None:
        self._active = active
        self._job = job
        self._tools = tools
        arguments = (tools.own, job, turn_of(active), tools.wiretap)
        self._clients = [NetClient(name, *arguments) for name in job.passive]
        self.life = JobLife(active, tools, self._clients)
        self._epochs = EpochStore(tools.store, active.job_id)
        self._shelf = TeacherShelf(tools.store, active.job_id)
        self._done = 0

    async def run(self) -> None:
        """Stage 1 with A, then stage 2 without, then the report."""
        require_networks(self._tools.own.party)
        taught = await self.life.while_present(self._stage_one())
        outcome = NetOutcome(self._active.job_id, self._job, taught.rows, taught.opened.rows, taught.aligned)
        outcome.columns = {**taught.columns, self._job.active: len(taught.rows.table.features)}
        if self._clients:
            await self._release(outcome)
        outcome.teachers = [self._shelf.load(run) for run in self._job.runs] if self._clients else []
        outcome.seconds, outcome.computing = self.life.seconds, self.life.watch.seconds
        outcome.own_traffic = self.life.traffic()
        await asyncio.to_thread(write_net_artifacts, outcome, self._tools.store)

    async def _stage_one(self) -> _Taught:
        own, job = self._tools.own, self._job
        with self.life.timed("opening"):
            await self._active.enter("opening", f"opening the job with {', '.join(job.passive) or 'nobody'}")
            table = await asyncio.to_thread(read_dataset, own, job)
            opened = await self.life.open(OwnRows(table.ids, own.policy.least_common))
        with self.life.timed("aligning"):
            aligned = await self.life.align(opened)
        with self.life.timed("preparing"):
            await self._active.enter("preparing", "encoding rows")
            common = aligned.alignment.rows if self._clients else np.zeros(0, dtype=np.int64)
            rows = await asyncio.to_thread(active_rows, own, job, table, common)
        taught = _Taught(rows, opened, aligned)
        if self._clients:
            with self.life.timed("training"):
                await self._active.enter("training", f"training {_networks(len(job.runs))} with A")
                for run in job.runs:
                    await self._teach(taught, run)
        return taught

    async def _teach(self, taught: _Taught, run: Run) -> None:
        """Train one run's split network, and put what it knows on B's disk."""
        rows, job = taught.rows, self._job
        half = Half(job, run, rows.design, party_secret(self._tools.own.state))
        parts = rows.parts(run)
        training = SplitTraining(
            RunRows(rows.common, parts, rows.labels, half), self._clients, self._epochs, self.life.watch
        )
        role, progress = await training.run(taught.aligned.alignment.alignment_id, self._epoch_done)
        taught.columns.update(training.columns)
        if self._shelf.has(run):
            return
        number, epoch = run.number, progress.best
        known = await fetched(self._clients, number, epoch, parts, "training")
        logits = await self.life.watch.thread("training", role.scores, rows.common[parts.training], known)
        test_logits = None
        if len(parts.test) and (job.algorithm == "splitnn" or job.train.measure_teacher):
            tested = await fetched(self._clients, number, epoch, parts, "test")
            test_logits = await self.life.watch.thread(
                "training", role.scores, rows.common[parts.test], tested
            )
        rounding = {
            what: max(one.rounding[what] for one in self._clients) for what in self._clients[0].rounding
        }
        weights = role.network.weights_to_bytes() if number == 0 else b""
        await asyncio.to_thread(
            self._shelf.keep, run, Taught(progress, known, logits, test_logits, rounding), weights
        )
        self._epochs.forget(number)

    async def _epoch_done(self, run: Run, epoch: int, loss: float) -> None:
        self._done += 1
        await self._active.round_done(self._done, loss)

    async def _release(self, outcome: NetOutcome) -> None:
        """Tell every passive party that its part is done: it keeps its own network, and may go."""
        with self.life.timed("closing"):
            keep = partial(self._tools.store.write_json, self._active.job_id, MODEL_FILE)
            epoch = self._shelf.load(self._job.runs[0]).progress.best
            model = own_part(outcome, epoch, self._tools.store, self._shelf)
            keep(model.to_json())
            outcome.replies = await self.life.close(epoch)
            parts = {name: reply.model_digest for name, reply in outcome.replies.items()}
            keep(replace(model, parts=parts).to_json())


def _networks(count: int) -> str:
    return "a split network" if count == 1 else f"{count} split networks"
