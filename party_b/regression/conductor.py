"""Conducts encrypted regression from its opening to its report (protos/vfl/v1/job.proto, he_linear.proto)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from common.data.table import Table
from common.errors import JobError, RemoteProtocolError
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.runtime.checkpoint import CLOSING, Checkpoint
from common.runtime.config.job import JobConfig
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
from common.runtime.state import MODEL_FILE
from common.types import Floats
from party_b.alignment import Aligned
from party_b.job_life import JobLife, Opened, OwnRows, Tools, turn_of
from party_b.jobs import ActiveJob
from party_b.regression.expected import expected_cost, measured_speed
from party_b.regression.outcome import RunOutcome, own_model, write_artifacts
from party_b.regression.passive_client import PassiveClient
from party_b.regression.rounds import Peers
from party_b.regression.training import (
    Problem,
    Training,
    describe_plan,
    describe_solver,
    require_resolution,
    targets_of,
)
from party_b.regression.training_log import TrainingLog


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


@dataclass(frozen=True, slots=True, eq=False)
class _Trained:
    """What is known when every passive party has kept its part of the model and told its scores.

    Attributes:
        rows: By party, before alignment.
        scores: Of all aligned rows, (n,).
        weights: Ours, (d,).
    """

    designed: _Designed
    rows: dict[str, int]
    scores: Floats = field(repr=False)
    weights: Floats = field(repr=False)
    losses: Sequence[float | None]
    converged: bool

    def to_json(self) -> dict[str, object]:
        """Return what closing needs besides our data, our alignment and our last round."""
        designed = self.designed
        return {
            "rows": self.rows,
            "columns": designed.columns,
            "learning_rate": designed.learning_rate,
            "plan": designed.plan,
            "scores": self.scores.tolist(),
        }


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
        self._log = TrainingLog(Checkpoint.of(tools.store, active.job_id), self.life.cost)

    async def run(self) -> None:
        """Open, align, prepare, train, measure, close, report; earlier attempts may have done some of it."""
        kept = await asyncio.to_thread(self._log.checkpoint.kept, CLOSING)
        self._active.remember(await asyncio.to_thread(self._log.cost))
        if kept is None:
            trained = await self.life.while_present(self._work())
            # From here on the job can only finish: every passive party has kept its part of the model.
            await asyncio.to_thread(self._log.checkpoint.keep, CLOSING, trained.to_json())
        else:
            trained = await self._recalled(kept)
        replies = await self._close(trained)
        outcome = self._outcome(trained, replies)
        await asyncio.to_thread(write_artifacts, outcome, self._tools.store)

    async def _close(self, trained: _Trained) -> dict[str, pb.CloseJobReply]:
        with self.life.timed("closing"):
            model = own_model(
                self._active.job_id, self._job, trained.designed.design, trained.weights, len(trained.losses)
            )
            keep = partial(self._tools.store.write_json, self._active.job_id, MODEL_FILE)
            keep(model.to_json())
            replies = await self.life.close(model.rounds)
            parts = {name: replies[name].model_digest for name in self._job.passive}
            keep(replace(model, parts=parts).to_json())
        return replies

    def _outcome(self, trained: _Trained, replies: Mapping[str, pb.CloseJobReply]) -> RunOutcome:
        designed = trained.designed
        return RunOutcome(
            job_id=self._active.job_id,
            job=self._job,
            aligned=designed.aligned,
            design=designed.design,
            ids=designed.ids,
            labels=designed.labels,
            scores=trained.scores,
            weights=trained.weights,
            columns=designed.columns,
            rows=trained.rows,
            losses=trained.losses,
            converged=trained.converged,
            plan=designed.plan,
            expected=designed.expected,
            seconds=self.life.seconds,
            computing=self._watch.seconds,
            replies=replies,
            own_traffic=self.life.traffic(),
            remarks=self._active.remarks,
            interruptions=tuple(self._active.losses),
        )

    async def _recalled(self, kept: Mapping[str, Any]) -> _Trained:
        """Return what an earlier attempt had trained and measured.

        Raises:
            JobError: The disk does not hold all of it any more.
        """
        own, job = self._tools.own, self._job
        table = await asyncio.to_thread(read_dataset, own, job)
        aligned = await asyncio.to_thread(self.life.kept_alignment, table.ids)
        last = await asyncio.to_thread(self._log.last)
        if aligned is None or last is None:
            raise JobError("the job cannot be closed: its alignment or its last round is gone from the disk")
        columns, rows = kept["columns"], kept["rows"]
        designed = await self._designed(table, aligned, columns, kept["learning_rate"])
        designed.plan = kept["plan"]
        speed = await asyncio.to_thread(measured_speed, own, job)
        designed.expected = expected_cost(own, job, speed, designed.design, (columns, rows))
        self._active.rounds = last.number
        weights, scores = np.array(last.solver["weights"]), np.array(kept["scores"])
        return _Trained(designed, rows, scores, weights, last.losses, last.converged)

    async def _open(self) -> _Opened:
        own, job = self._tools.own, self._job
        await self._active.enter("opening", f"opening the job with {', '.join(job.members[1:])}")
        table = await asyncio.to_thread(read_dataset, own, job)
        table.column(job.data.label)
        everywhere = await self.life.open(OwnRows(table.ids, own.policy.least_common))
        await self._coordinator.open_job()
        self.life.attend(self._coordinator)
        return _Opened(table, everywhere)

    async def _work(self) -> _Trained:
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
            if self._active.attempt:
                self._active.rounds = await training.go_on()
            await training.share(self._active.advance)
            solver = describe_solver(self._problem(designed))
            after = f", from round {self._active.rounds + 1} on" if self._active.rounds else ""
            await self._active.enter("training", f"training by {solver}{after}")
            await training.run(self._tools.executor, self._active.round_done)
        with self.life.timed("evaluating"):
            await self._active.enter("evaluating", "measuring the model")
            count = len(designed.ids)
            parts = await asyncio.gather(*(client.partial_scores(count) for client in self._passive))
            scores = designed.design.matrix @ training.weights + sum(parts)
        rows = opened.everywhere.rows
        return _Trained(designed, rows, scores, training.weights, training.losses, training.converged)

    async def _design(self, opened: _Opened, aligned: Aligned) -> _Designed:
        job, alignment = self._job, aligned.alignment
        rows = len(alignment.rows)
        replies = await asyncio.gather(
            *(client.build_design(alignment.alignment_id, rows) for client in self._passive)
        )
        named = dict(zip(job.passive, replies, strict=True))
        columns = {name: reply.columns for name, reply in named.items()}
        designed = await self._designed(opened.table, aligned, columns, 0.0)
        design = designed.design
        await self._coordinator.open_job(design.columns)
        designed.columns = columns | {job.active: design.columns}
        curvatures = {name: reply.curvature for name, reply in named.items()}
        designed.learning_rate = step_size(job, curvatures | {job.active: design.curvature(loss_of(job))})
        return designed

    async def _designed(
        self, table: Table, aligned: Aligned, columns: dict[str, int], learning_rate: float
    ) -> _Designed:
        """Return our own part of the design, on the aligned rows."""
        job = self._job
        chosen = await asyncio.to_thread(table.take, aligned.alignment.rows)
        labels, features = chosen.column(job.data.label), chosen.without(job.data.label)
        design = await asyncio.to_thread(design_with_intercept, features, job)
        return _Designed(aligned, chosen.ids, labels, targets_of(labels, job), design, columns, learning_rate)

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
        targets = hashlib.sha256(problem.targets.astype("<f8").tobytes()).hexdigest()
        facts = {
            "data": await asyncio.to_thread(design.fingerprint),
            "labels": targets,
            "columns": dict(sorted(designed.columns.items())),
            "learning_rate": designed.learning_rate,
        }
        await asyncio.to_thread(self._log.begin, facts)
        return await self._watch.thread("preparing", Training, problem, cipher, peers, self._watch, self._log)

    def _problem(self, designed: _Designed) -> Problem:
        targets = designed.targets[designed.design.train]
        return Problem(self._job, designed.design, targets, designed.columns, designed.learning_rate)
