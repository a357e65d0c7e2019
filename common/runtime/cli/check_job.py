"""What each peer would answer to a job, asked without opening anything."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np

from common.data.ids import rule_differences
from common.errors import ColonnadeError, ConfigError
from common.glm.labels import signed_labels
from common.nets.available import require_torch
from common.nets.field_stream import learn
from common.rpc.channels import Deadline, open_channel
from common.rpc.diagnose import Finding
from common.rpc.greeting import check_greeting, make_greeting
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb.coordinator_pb2_grpc import CoordinatorStub
from common.rpc.pb.passive_party_pb2_grpc import PassivePartyStub
from common.rpc.wiretap import Tap, Wiretap
from common.runtime.config.alone import AloneJob, TrainingJob
from common.runtime.config.job import JobConfig
from common.runtime.config.job_kinds import Job
from common.runtime.config.networks import NetJob
from common.runtime.config.party import PartyConfig
from common.runtime.config.predict import PredictJob
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.linear_design import (
    LinearDesign,
    design_with_intercept,
    id_rule,
    plain_design,
    prove_plan,
    read_dataset,
)
from common.runtime.net_design import field_settings, net_rows
from common.runtime.vfb2.columns import prepare_columns, read_rows
from common.runtime.vfb2.sums import dialled_by


@dataclass(frozen=True, slots=True)
class _Asked:
    own: PartyConfig
    job: JobConfig | NetJob | Vfb2Job
    columns: int
    taps: Sequence[Tap]


async def check_job(own: PartyConfig, job: Job, taps: Sequence[Tap]) -> AsyncIterator[tuple[str, Finding]]:
    """Yield what this party and, asked by the active one, each peer says about a job; taps see the asking."""
    role = job.role_of(own.party)
    if role != own.role:
        detail = f"{own.party} is {own.role}; the job names it as {role or 'no party at all'}"
        yield own.party, Finding("role", False, detail, "change the job file or the party file")
        return
    yield own.party, Finding("role", True, f"the job names {own.party} as {role}")
    if own.role == "coordinator":
        return
    if isinstance(job, PredictJob):
        known = job.data.dataset in own.datasets
        detail = f"{own.party} has {'a' if known else 'no'} data set called {job.data.dataset!r}"
        yield own.party, Finding("job data", known, detail, "declare it under `datasets`")
        return
    if isinstance(job, NetJob):
        async for told in _check_networks(own, job, taps):
            yield told
        return
    if isinstance(job, Vfb2Job):
        async for told in _check_vfb2(own, job, taps):
            yield told
        return
    try:
        design = _own_part(own, job)
    except ColonnadeError as exc:
        yield own.party, _failed("job data", exc)
        return
    detail = (
        f"up to {len(design.train)} training rows, {len(design.test)} test rows, {design.columns} columns"
    )
    yield own.party, Finding("job data", True, detail)
    if own.role != "active" or isinstance(job, AloneJob):
        return
    asked = _Asked(own, job, design.columns, taps)
    columns = {own.party: design.columns}
    for peer in (*job.passive, job.coordinator):
        findings, count = await _answer(asked, peer)
        for finding in findings:
            yield peer, finding
        if count:
            columns[peer] = count
    if len(columns) == len(job.passive) + 1:
        yield own.party, _plan(design, job, columns)


def check_undialled(own: PartyConfig, job: Job | None, peer: str) -> Finding:
    """Tell whether a peer for which our file has no address is one that we need not dial."""
    if isinstance(job, Vfb2Job) and own.party in job.members and peer in dialled_by(job, own.party):
        detail = f"{own.party} dials {peer} in this job, and has no address for it"
        return Finding("address", False, detail, "add it under `peers` in the party file")
    detail = f"is never dialled from here; it dials {own.party}"
    if job is None and "vfb2" in own.policy.algorithms:
        detail = "is not dialled from here, unless in a vfb2 job; check with the job file whether it is"
    return Finding("address", True, detail)


async def _check_networks(
    own: PartyConfig, job: NetJob, taps: Sequence[Tap]
) -> AsyncIterator[tuple[str, Finding]]:
    """Yield whether networks can be trained here, on our rows, and what each peer would answer."""
    try:
        require_torch()
        rows = net_rows(own, job)
        if own.role == "active":
            signed_labels(rows.head.column(job.data.label), job.data.label)
        plan = learn(rows, np.arange(rows.head.rows), field_settings(own, job))
    except ColonnadeError as exc:
        yield own.party, _failed("job data", exc)
        return
    layout = plan.layout
    detail = f"up to {rows.head.rows} rows, {len(plan.fields)} fields, {layout.table_rows:,} embeddings"
    yield own.party, Finding("job data", True, detail)
    if own.role == "active":
        for peer in job.passive:
            findings, _ = await _answer(_Asked(own, job, len(plan.fields), taps), peer)
            for found in findings:
                yield peer, found


async def _check_vfb2(
    own: PartyConfig, job: Vfb2Job, taps: Sequence[Tap]
) -> AsyncIterator[tuple[str, Finding]]:
    """Yield what this party can do in VFB² and, asked by the first active party, what the others can."""
    try:
        for name in dialled_by(job, own.party):
            if name not in own.peers:
                yield name, check_undialled(own, job, name)
        columns = prepare_columns(read_rows(own, job), job, own.party)
    except ColonnadeError as exc:
        yield own.party, _failed("job data", exc)
        return
    detail = f"up to {len(columns.train_rows)} training rows, {len(columns.names)} columns"
    yield own.party, Finding("job data", True, detail)
    if own.party != job.active:
        return
    for peer in job.guests:
        findings, _ = await _answer(_Asked(own, job, len(columns.names), taps), peer)
        for finding in findings:
            yield peer, finding


def _own_part(own: PartyConfig, job: TrainingJob) -> LinearDesign:
    """Return the design as it would be if all rows were common to all parties."""
    table = read_dataset(own, job)
    if own.role != "active":
        return plain_design(table, job)
    table.column(job.data.label)
    return design_with_intercept(table.without(job.data.label), job)


async def _answer(asked: _Asked, peer: str) -> tuple[list[Finding], int]:
    """Return a peer's answer to the job, and how many columns it holds (0: none, or it did not say)."""
    own, job = asked.own, asked.job
    address = own.peers.get(peer)
    if address is None:
        detail = f"{own.party} has no address for {peer}"
        return [Finding("job", False, detail, "add it under `peers` in the party file")], 0
    try:
        async with open_channel(peer, address, own.party, own.security, Wiretap(asked.taps)) as channel:
            is_coordinator = job.role_of(peer) == "coordinator"
            stub = CoordinatorStub(channel) if is_coordinator else PassivePartyStub(channel)
            deadline = Deadline(own.deadlines.call_s, "deadlines.call_s")
            reply: pb.OpenJobReply = await stub.OpenJob(_preflight(asked, peer), timeout=deadline)
        check_greeting(reply.greeting, peer, job.role_of(peer), address)
    except ColonnadeError as exc:
        return [_failed("job", exc)], 0
    if is_coordinator:
        return [Finding("job", True, "would take part")], 0
    detail = f"would take part with {reply.rows} rows and {reply.columns} columns"
    return [Finding("job", True, detail), _rule(id_rule(own, job), reply.id_rule)], reply.columns


def _preflight(asked: _Asked, peer: str) -> pb.OpenJobRequest:
    job = asked.job
    return pb.OpenJobRequest(
        turn=pb.Turn(job_id=f"preflight-{secrets.token_hex(6)}", job_digest=job.digest()),
        greeting=make_greeting(asked.own.party, asked.own.role),
        expected_role=job.role_of(peer) or "",
        job_json=job.canonical_json(),
        columns=asked.columns,
        preflight=True,
    )


def _rule(own: str, theirs: str) -> Finding:
    differences = rule_differences(own, theirs)
    if not differences:
        return Finding("ids", True, "the same id rule on both sides")
    return Finding("ids", False, "; ".join(differences), "declare the same id rule on both sides")


def _plan(design: LinearDesign, job: JobConfig, columns: dict[str, int]) -> Finding:
    try:
        return Finding("plan", True, prove_plan(design, job, columns).describe())
    except ColonnadeError as exc:
        return _failed("plan", exc)


def _failed(name: str, exc: ColonnadeError) -> Finding:
    where = f" ({exc.where})" if exc.where and isinstance(exc, ConfigError) else ""
    return Finding(name, False, f"{exc.what}{where}", exc.advice)
