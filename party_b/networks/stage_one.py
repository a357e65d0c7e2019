"""Stage 1 of a job with networks, which needs the other parties: open, align, train split networks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from common.data.scanned import Rows
from common.runtime.checkpoint import Checkpoint
from common.runtime.config.networks import NetJob, Run
from common.runtime.epoch_store import EpochStore, party_secret
from common.runtime.net_halves import Half
from common.types import Ints
from party_b.job_life import JobLife, OwnRows, Tools
from party_b.jobs import ActiveJob
from party_b.networks.client import NetClient
from party_b.networks.rows import ActiveRows, active_rows
from party_b.networks.teacher import Taught, TeacherShelf
from party_b.networks.training import RunRows, SplitTraining, fetched

_DONE = "stage-one"
_COMMON_FILE = "common.npy"


@dataclass(frozen=True, slots=True, eq=False)
class StageOne:
    """What stage 1 says, besides what its runs have taught.

    Attributes:
        counts: Rows by party, before alignment.
        columns: Of every party's table.
        common: B's row numbers of the common rows, in the common order.
        shared: Anonymous points that two parties' sets share, by pair.
        reused: Whether an earlier alignment served again.
        notes: Sentences about the alignment.
    """

    counts: Mapping[str, int]
    columns: Mapping[str, int]
    common: Ints = field(repr=False)
    shared: Mapping[tuple[str, str], int] = field(default_factory=dict)
    reused: bool = False
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return everything but the rows."""
        return {
            "counts": dict(self.counts),
            "columns": dict(self.columns),
            "shared": [[*pair, count] for pair, count in self.shared.items()],
            "reused": self.reused,
            "notes": list(self.notes),
        }


class StageOneConductor:
    """Conducts stage 1, in one attempt."""

    def __init__(
        self, active: ActiveJob, job: NetJob, tools: Tools, life: JobLife, clients: Sequence[NetClient]
    ) -> None:
        self._active = active
        self._job = job
        self._tools = tools
        self._life = life
        self._clients = clients
        self._checkpoint = Checkpoint.of(tools.store, active.job_id)
        self._epochs = EpochStore(self._checkpoint)
        self._shelf = TeacherShelf(self._epochs)
        self._before = 0
        self._columns: dict[str, int] = {}

    async def run(self, source: Rows) -> tuple[ActiveRows, StageOne]:
        """Open, align and train; everything that comes out is on B's disk before this returns."""
        own, job, life = self._tools.own, self._job, self._life
        with life.timed("opening"):
            await self._active.enter("opening", f"opening the job with {', '.join(job.passive)}")
            opened = await life.open(OwnRows(source.head.ids, own.policy.least_common))
        with life.timed("aligning"):
            aligned = await life.align(opened)
        with life.timed("preparing"):
            await self._active.enter("preparing", "encoding rows")
            folder, common = self._checkpoint.folder, aligned.alignment.rows
            rows = await asyncio.to_thread(active_rows, own, job, source, folder, common)
        with life.timed("training"):
            what = "a split network" if len(job.runs) == 1 else f"{len(job.runs)} split networks"
            await self._active.enter("training", f"training {what} with {', '.join(job.passive)}")
            for run in job.runs:
                await self._teach(rows, run, aligned.alignment.alignment_id)
        found = StageOne(
            opened.rows,
            {**self._columns, own.party: len(source.features)},
            rows.common,
            aligned.shared,
            aligned.reused,
            aligned.notes,
        )
        await asyncio.to_thread(keep_stage_one, self._epochs, found)
        return rows, found

    async def _teach(self, rows: ActiveRows, run: Run, alignment_id: bytes) -> None:
        """Train one run's split network, and put what it knows on B's disk."""
        if self._shelf.has(run):
            self._before += self._shelf.load(run).progress.epoch
            self._columns = dict(self._shelf.columns(run))
            return
        job, parts, life = self._job, rows.parts(run), self._life
        design = await asyncio.to_thread(rows.design, run)
        half = Half(job, run, design, party_secret(self._tools.own.state))
        about = RunRows(rows.common, parts, rows.labels, half)
        training = SplitTraining(about, self._clients, self._epochs, life.watch)
        of_runs = f" ({run.number + 1} of {len(job.runs)})" if len(job.runs) > 1 else ""
        await self._active.advance(f"every party encodes its rows{of_runs}")
        await training.build(alignment_id)
        await self._active.advance(f"first epoch{of_runs}")
        role, progress = await training.run(self._epoch_done)
        known = await fetched(self._clients, run.number, progress.best, parts, "training")
        logits = await life.watch.thread("training", role.scores, rows.common[parts.training], known)
        test_logits = None
        if len(parts.test) and (job.algorithm == "splitnn" or job.train.measure_teacher):
            tested = await fetched(self._clients, run.number, progress.best, parts, "test")
            chosen = rows.common[parts.test]
            test_logits = await life.watch.thread("training", role.scores, chosen, tested)
        rounding = {what: max(one.rounding[what] for one in self._clients) for what in _ROUNDED}
        taught = Taught(progress, known, logits, test_logits, rounding, training.leaks())
        weights = role.network.weights_to_bytes() if run.number == 0 else b""
        await asyncio.to_thread(self._shelf.keep, run, taught, training.columns, weights)
        self._before += progress.epoch
        self._columns = training.columns
        self._epochs.forget(run.number)

    async def _epoch_done(self, epoch: int, loss: float) -> None:
        await self._active.round_done(self._before + epoch, loss)


_ROUNDED = ("representations", "gradients")


def keep_stage_one(epochs: EpochStore, found: StageOne) -> None:
    """Note durably that stage 1 is over."""
    epochs.write(_COMMON_FILE, found.common.astype("<i8").tobytes())
    epochs.checkpoint.keep(_DONE, found.to_json())


def kept_stage_one(epochs: EpochStore) -> StageOne | None:
    """Return what stage 1 said, None while it is not over."""
    said = epochs.checkpoint.kept(_DONE)
    if said is None:
        return None
    return StageOne(
        said["counts"],
        said["columns"],
        np.frombuffer(epochs.read(_COMMON_FILE), dtype="<i8").astype(np.int64),
        {(first, second): int(count) for first, second, count in said["shared"]},
        bool(said["reused"]),
        tuple(said["notes"]),
    )
