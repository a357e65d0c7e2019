"""Conducts encrypted regression from its opening to its report (protos/vfl/v1/job.proto, he_linear.proto)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial

from common.data.table import Table
from common.errors import RemoteProtocolError
from common.rpc.pb import he_linear_pb2 as he
from common.runtime.config_job import JobConfig
from common.runtime.coordinator_client import CoordinatorClient
from common.runtime.estimate import Estimate
from common.runtime.linear_design import (
    LinearDesign,
    cipher_for,
    design_with_intercept,
    loss_of,
    prove_plan,
    read_dataset,
    step_size,
)
from common.runtime.saved_model import MODEL_FILE
from common.types import Floats
from party_b.alignment import Aligned
from party_b.expected import expected_cost, measured_speed
from party_b.job_life import JobLife, Opened, OwnRows, Tools, turn_of
from party_b.jobs import ActiveJob
from party_b.outcome import RunOutcome, own_model, write_artifacts
from party_b.passive_client import PassiveClient
from party_b.rounds import Peers
from party_b.training import Problem, Training, describe_plan, describe_solver, require_resolution, targets_of


@dataclass(slots=True)
class _Opened:
    """What is known once every party has opened the job.

    Attributes:
        table: B's own rows.
        everywhere: What the passive parties answered.
    """

    table: Table
    everywhere: Opened


@dataclass(slots=True)
class _Designed:
    """What is known once the rows are aligned; columns by party, the intercept included."""

    aligned: Aligned
    ids: tuple[str, ...]
    labels: Floats
    targets: Floats  # the labels as the loss takes them
    design: LinearDesign
    columns: dict[str, int]
    learning_rate: float
    plan: str = ""
    expected: Estimate | None = None


class RegressionConductor:
    """Conducts encrypted regression."""

    def __init__(self, active: ActiveJob, job: JobConfig, tools: Tools) -> None:
        self._active = active
        self._tools = tools
        self._job = job
        self._turn = turn_of(active)
        arguments = (tools.own, job, self._turn, tools.wiretap)
        self._passive = [PassiveClient(name, *arguments) for name in job.passive]
        self._coordinator = CoordinatorClient(*arguments)
        self.life = JobLife(active, tools, self._passive, self._coordinator)
        self._watch = self.life.watch

    async def run(self) -> None:
        """Open, align, prepare, train, measure, close, report."""
        opened, designed, trained, scores = await self.life.while_present(self._work())
        with self.life.timed("closing"):
            model = own_model(
                self._active.job_id, self._job, designed.design, trained.weights, len(trained.losses)
            )
            keep = partial(self._tools.store.write_json, self._active.job_id, MODEL_FILE)
            keep(model.to_json())
            replies = await self.life.close(model.rounds)
            parts = {name: replies[name].model_digest for name in self._job.passive}
            keep(replace(model, parts=parts).to_json())
        outcome = RunOutcome(
            job_id=self._active.job_id,
            job=self._job,
            aligned=designed.aligned,
            design=designed.design,
            ids=designed.ids,
            labels=designed.labels,
            scores=scores,
            weights=trained.weights,
            columns=designed.columns,
            rows=opened.everywhere.rows,
            losses=trained.losses,
            converged=trained.converged,
            plan=designed.plan,
            expected=designed.expected,
            seconds=self.life.seconds,
            computing=self._watch.seconds,
            replies=replies,
            own_traffic=self.life.traffic(),
            remarks=self._active.remarks,
        )
        await asyncio.to_thread(write_artifacts, outcome, self._tools.store)

    async def _open(self) -> _Opened:
        own, job = self._tools.own, self._job
        await self._active.enter("opening", f"opening the job with {', '.join(job.members[1:])}")
        table = await asyncio.to_thread(read_dataset, own, job)
        table.column(job.data.label)
        everywhere = await self.life.open(OwnRows(table.ids, own.policy.least_common))
        await self._coordinator.open_job()
        self.life.attend(self._coordinator)
        return _Opened(table, everywhere)

    async def _work(self) -> tuple[_Opened, _Designed, Training, Floats]:
        with self.life.timed("opening"):
            own = self._tools.own
            speed = await asyncio.to_thread(measured_speed, own, self._job)
            opened = await self._open()
        with self.life.timed("aligning"):
            aligned = await self.life.align(opened.everywhere)
        with self.life.timed("preparing"):
            designed = await self._design(opened, aligned)
            training = await self._prepare(designed)
            parties = (designed.columns, opened.everywhere.rows)
            designed.expected = expected_cost(own, self._job, speed, designed.design, parties)
        with self.life.timed("training"):
            await training.share(self._active.advance)
            await self._active.enter("training", f"training by {describe_solver(self._problem(designed))}")
            await training.run(self._tools.executor, self._active.round_done)
        with self.life.timed("evaluating"):
            await self._active.enter("evaluating", "measuring the model")
            count = len(designed.ids)
            parts = await asyncio.gather(*(client.partial_scores(count) for client in self._passive))
            scores = designed.design.matrix @ training.weights + sum(parts)
        return opened, designed, training, scores

    async def _design(self, opened: _Opened, aligned: Aligned) -> _Designed:
        job, alignment = self._job, aligned.alignment
        table = await asyncio.to_thread(opened.table.take, alignment.rows)
        labels, features = table.column(job.data.label), table.without(job.data.label)
        design = await asyncio.to_thread(design_with_intercept, features, job)
        replies = await asyncio.gather(
            *(client.build_design(alignment.alignment_id, table.rows) for client in self._passive)
        )
        await self._coordinator.open_job(design.columns)
        named = dict(zip(job.passive, replies, strict=True))
        curvatures = {name: reply.curvature for name, reply in named.items()}
        return _Designed(
            aligned,
            table.ids,
            labels,
            targets_of(labels, job),
            design,
            {name: reply.columns for name, reply in named.items()} | {job.active: design.columns},
            step_size(job, curvatures | {job.active: design.curvature(loss_of(job))}),
        )

    async def _prepare(self, designed: _Designed) -> Training:
        job, design, problem = self._job, designed.design, self._problem(designed)
        await self._active.enter("preparing", f"proving the ranges for {len(design.train)} training rows")
        plan = await asyncio.to_thread(prove_plan, design, job, designed.columns)
        require_resolution(problem)
        designed.plan = " ".join(filter(None, (plan.describe(), describe_plan(problem))))
        request = he.PrepareRequest(
            turn=self._turn,
            train_rows=len(design.train),
            columns=designed.columns,
            learning_rate=designed.learning_rate,
        )
        key = await self._coordinator.public_key(designed.columns)
        replies = await asyncio.gather(*(client.prepare(request) for client in self._passive))
        for client, reply in zip(self._passive, replies, strict=True):
            if reply.key_id != key.key_id:
                raise RemoteProtocolError(f"{client.name} was given another public key than {job.active}")
        cipher = cipher_for(job, key, self._tools.executor)
        peers = Peers(self._passive, self._coordinator, self._turn)
        return await self._watch.thread("preparing", Training, problem, cipher, peers, self._watch)

    def _problem(self, designed: _Designed) -> Problem:
        targets = designed.targets[designed.design.train]
        return Problem(self._job, designed.design, targets, designed.columns, designed.learning_rate)
