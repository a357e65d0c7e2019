"""Conducts one job from its opening to its report (protos/vfl/v1/job.proto, he_linear.proto)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from common.data.table import Table
from common.errors import ColonnadeError, RemoteProtocolError
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.rpc.wiretap import Wiretap
from common.runtime.alignment_cache import Alignment, AlignmentCache
from common.runtime.config_job import JobConfig
from common.runtime.config_party import PartyConfig
from common.runtime.coordinator_client import CoordinatorClient, in_round
from common.runtime.estimate import Estimate
from common.runtime.linear_design import (
    LinearDesign,
    alignment_key,
    cipher_for,
    design_with_intercept,
    id_rule,
    loss_of,
    prove_plan,
    read_dataset,
    step_size,
)
from common.runtime.state import JobStore
from common.runtime.stopwatch import Stopwatch
from common.types import Floats
from party_b.alignment import Aligned, AlignmentConductor, Alike
from party_b.expected import expected_cost, measured_speed
from party_b.jobs import ActiveJob
from party_b.outcome import RunOutcome, own_model, write_artifacts
from party_b.passive_client import PassiveClient
from party_b.rounds import Peers
from party_b.training import Problem, Training, describe_plan, describe_solver, require_resolution, targets_of

log = logging.getLogger("vfl.party_b")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tools:
    """What every job of this party uses."""

    own: PartyConfig
    store: JobStore
    executor: Executor
    wiretap: Wiretap


@dataclass(slots=True)
class _Opened:
    """What is known once every party has opened the job.

    Attributes:
        table: B's own rows.
        rows: By party, before alignment.
        kept: An earlier alignment that every party still has, None without one.
    """

    table: Table
    rows: dict[str, int]
    kept: Alignment | None


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


async def conduct(active: ActiveJob, tools: Tools) -> None:
    """Run a job to its end: report and model are on the disk, and every party has closed it.

    Raises:
        ColonnadeError: It did not end with a model; every party that could be reached has been told.
    """
    conductor = _Conductor(active, tools)
    try:
        await conductor.run()
    except asyncio.CancelledError:
        await conductor.abandon(pb.CANCELLED, active.cancelled_because)
        raise
    except Exception as exc:
        reason = exc.what if isinstance(exc, ColonnadeError) else f"a bug at {tools.own.party}"
        await conductor.abandon(pb.FAILED, reason)
        raise
    finally:
        await conductor.disconnect()


class _Conductor:
    def __init__(self, active: ActiveJob, tools: Tools) -> None:
        self._active = active
        self._tools = tools
        self._job: JobConfig = active.config
        self._turn = pb.Turn(job_id=active.job_id, job_digest=self._job.digest())
        arguments = (tools.own, self._job, self._turn, tools.wiretap)
        self._passive = [PassiveClient(name, *arguments) for name in self._job.passive]
        self._coordinator = CoordinatorClient(*arguments)
        self._peers: tuple[PassiveClient | CoordinatorClient, ...] = (*self._passive, self._coordinator)
        self._attending: list[asyncio.Task[None]] = []
        self._lost: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._seconds: dict[str, float] = {}
        self._watch = Stopwatch()
        active.traffic = self._traffic

    async def run(self) -> None:
        """Open, align, prepare, train, measure, close, report."""
        opened, designed, trained, scores = await self._while_present(self._work())
        with self._timed("closing"):
            model = own_model(self._active.job_id, self._job, designed.design, trained.weights)
            self._tools.store.write_json(self._active.job_id, "model.json", model)
            replies = await self._close(len(trained.losses))
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
            rows=opened.rows,
            losses=trained.losses,
            converged=trained.converged,
            plan=designed.plan,
            expected=designed.expected,
            seconds=self._seconds,
            computing=self._watch.seconds,
            replies=replies,
            own_traffic=self._traffic(),
        )
        await asyncio.to_thread(write_artifacts, outcome, self._tools.store)

    async def abandon(self, outcome: pb.Outcome.ValueType, reason: str) -> None:
        """Tell every party that the job is over; those that cannot be reached notice by themselves."""
        request = pb.CloseJobRequest(
            turn=in_round(self._turn, self._active.rounds), outcome=outcome, reason=reason
        )
        closing = (client.close_job(request) for client in self._passive)
        replies = await asyncio.gather(*closing, return_exceptions=True)
        # The coordinator last, here and in `_close`: whoever is present there would hear of the end from it
        # before it hears from us, and take it for a failure of its own.
        replies += await asyncio.gather(self._coordinator.close_job(request), return_exceptions=True)
        for peer, reply in zip(self._peers, replies, strict=True):
            if isinstance(reply, BaseException):
                log.info("job %s: %s was not told that it ended: %s", self._active.job_id, peer.name, reply)

    async def disconnect(self) -> None:
        """Close every connection of the job."""
        for peer in self._peers:
            await peer.disconnect()
        self._tools.wiretap.forget(self._active.job_id)

    async def _open(self) -> _Opened:
        own, job = self._tools.own, self._job
        await self._active.enter("opening", f"opening the job with {', '.join(job.members[1:])}")
        table = await asyncio.to_thread(read_dataset, own, job)
        table.column(job.data.label)
        kept = await asyncio.to_thread(self._kept, table)
        opening = [asyncio.ensure_future(self._open_at(client, kept)) for client in self._passive]
        try:
            replies = await asyncio.gather(*opening)
        finally:
            for task in opening:
                task.cancel()
        await self._coordinator.open_job()
        self._attend(self._coordinator)
        named = dict(zip(job.passive, replies, strict=True))
        return _Opened(
            table,
            {name: reply.rows for name, reply in named.items()} | {own.party: table.rows},
            kept if all(reply.alignment_kept for reply in replies) else None,
        )

    def _kept(self, table: Table) -> Alignment | None:
        own = self._tools.own
        kept = AlignmentCache(own.state).find(alignment_key(own, self._job, table.ids))
        return kept if kept is not None and len(kept.rows) >= own.policy.least_common else None

    async def _open_at(self, client: PassiveClient, kept: Alignment | None) -> pb.OpenJobReply:
        proposed = b"" if kept is None else kept.alignment_id
        reply = await client.open_job(id_rule(self._tools.own, self._job), proposed)
        self._attend(client)
        return reply

    async def _work(self) -> tuple[_Opened, _Designed, Training, Floats]:
        with self._timed("opening"):
            own = self._tools.own
            speed = await asyncio.to_thread(measured_speed, own, self._job)
            opened = await self._open()
        with self._timed("aligning"):
            aligned = await self._align(opened)
        with self._timed("preparing"):
            designed = await self._design(opened, aligned)
            training = await self._prepare(designed)
            parties = (designed.columns, opened.rows)
            designed.expected = expected_cost(own, self._job, speed, designed.design, parties)
        with self._timed("training"):
            await training.share(self._active.advance)
            await self._active.enter("training", f"training by {describe_solver(self._problem(designed))}")
            await training.run(self._tools.executor, self._active.round_done)
        with self._timed("evaluating"):
            await self._active.enter("evaluating", "measuring the model")
            count = len(designed.ids)
            parts = await asyncio.gather(*(client.partial_scores(count) for client in self._passive))
            scores = designed.design.matrix @ training.weights + sum(parts)
        return opened, designed, training, scores

    async def _align(self, opened: _Opened) -> Aligned:
        if opened.kept is not None:
            await self._active.enter("aligning", "every party has kept the alignment of an earlier job")
            return Aligned(opened.kept, {}, reused=True)
        own, table = self._tools.own, opened.table
        sizes = ", ".join(f"{name} {count:,}" for name, count in opened.rows.items())
        await self._active.enter("aligning", f"aligning ids: {sizes}")
        aligned = await AlignmentConductor(
            Alike(own.party, table.ids, opened.rows, own.policy.least_common),
            {client.name: client.alignment for client in self._passive},
            self._tools.executor,
            self._watch,
            self._active.advance,
        ).run()
        key = await asyncio.to_thread(alignment_key, own, self._job, table.ids)
        await asyncio.to_thread(AlignmentCache(own.state).keep, key, aligned.alignment)
        return aligned

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
        key = await self._coordinator.public_key()
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

    async def _close(self, rounds: int) -> dict[str, pb.CloseJobReply]:
        await self._active.enter("closing", "closing the job")
        request = pb.CloseJobRequest(turn=in_round(self._turn, rounds), outcome=pb.FINISHED)
        replies = await asyncio.gather(*(client.close_job(request) for client in self._passive))
        named = dict(zip(self._job.passive, replies, strict=True))
        try:
            named[self._job.coordinator] = await self._coordinator.close_job(request)
        except ColonnadeError as exc:
            # Every part of the model is kept by now, and the coordinator has none: nothing is lost with it.
            log.warning("job %s: the coordinator did not close it: %s", self._active.job_id, exc)
        return named

    async def _while_present(self, work: Coroutine[None, None, T]) -> T:
        """Do the work while every party that has opened the job is present; end it with the first loss."""
        main = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {main, self._lost}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._lost.done() and not main.done():
                raise self._lost.result()
            return await main
        finally:
            main.cancel()
            await asyncio.gather(main, return_exceptions=True)
            for attending in self._attending:
                attending.cancel()
            await asyncio.gather(*self._attending, return_exceptions=True)

    def _attend(self, peer: PassiveClient | CoordinatorClient) -> None:
        """Be present at a party from its opening on, because its clock for us runs from then on."""
        attending = asyncio.ensure_future(peer.attend())
        attending.add_done_callback(self._on_absence)
        self._attending.append(attending)

    def _on_absence(self, attending: asyncio.Task[None]) -> None:
        cause = None if attending.cancelled() else attending.exception()
        if cause is not None and not self._lost.done():
            self._lost.set_result(cause)

    def _traffic(self) -> tuple[int, int]:
        totals = self._tools.wiretap.totals(self._active.job_id)
        return totals.sent_bytes, totals.received_bytes

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start_s = time.monotonic()
        try:
            yield
        finally:
            self._seconds[phase] = time.monotonic() - start_s
