"""Stage 2 of a job with networks, at B alone: every model that the job asks for, in B's worker processes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial

from common.nets.recipe import Recipe
from common.runtime.checkpoint import Checkpoint
from common.runtime.compute import InProcessExecutor, WorkerPool
from common.runtime.config.networks import NetJob, Run
from common.runtime.epoch_store import EpochStore
from party_b.job_life import JobLife, Tools
from party_b.jobs import ActiveJob
from party_b.networks.methods import StudentTask, Trained, methods_of, task_of, train_student
from party_b.networks.rows import ActiveRows
from party_b.networks.teacher import Taught

Students = dict[tuple[int, str], Trained]
"""By run and method."""

WEIGHTS_FILE = "student.safetensors"


class StageTwo:
    """Trains what is B's alone, and keeps each model's results as soon as they are there."""

    def __init__(self, active: ActiveJob, job: NetJob, rows: ActiveRows, tools: Tools, life: JobLife) -> None:
        self._active = active
        self._job = job
        self._rows = rows
        self._executor = tools.executor
        self._watch = life.watch
        self._files = EpochStore(Checkpoint.of(tools.store, active.job_id))
        self._free = asyncio.Semaphore(max(1, int(getattr(tools.executor, "workers", 1))))
        self._done = 0

    async def run(self, teachers: Sequence[Taught]) -> Students:
        """Train every model of every run; those that are on the disk already are not trained again."""
        wanted = [
            (run, name, one) for run in self._job.runs for name, one in methods_of(self._job, run).items()
        ]
        if not wanted:
            return {}
        await self._active.enter("students", f"training models of {self._job.active}'s own: {len(wanted)}")
        began_s = time.monotonic()
        tasks = [
            asyncio.ensure_future(
                self._one(run, at, (name, recipe), teachers[run.number] if teachers else None)
            )
            for at, (run, name, recipe) in enumerate(wanted)
        ]
        found: Students = {}
        try:
            for task in asyncio.as_completed(tasks):
                run_number, name, trained = await task
                found[run_number, name] = trained
                self._done += 1
                left = (time.monotonic() - began_s) / self._done * (len(wanted) - self._done)
                await self._active.advance(f"{self._done} of {len(wanted)} models: {name}", left)
        finally:
            for pending in tasks:
                pending.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return {(run.number, name): found[run.number, name] for run, name, _ in wanted}

    async def _one(
        self, run: Run, at: int, method: tuple[str, Recipe], taught: Taught | None
    ) -> tuple[int, str, Trained]:
        name, recipe = method
        kept = self._files.checkpoint.kept(f"student-{at}")
        if kept is not None:
            return run.number, name, Trained.from_json(kept)
        async with self._free:
            task = await asyncio.to_thread(task_of, self._rows, run, recipe, taught)
            if not isinstance(self._executor, WorkerPool | InProcessExecutor):
                task = await asyncio.to_thread(task.in_memory)
            trained = await _computed(self._executor, task)
        self._watch.seconds["students"] += trained.seconds
        if run.number == 0 and name == self._job.algorithm:
            await asyncio.to_thread(self._files.write, WEIGHTS_FILE, trained.weights)
        await asyncio.to_thread(self._files.checkpoint.keep, f"student-{at}", trained.to_json())
        return run.number, name, trained


async def _computed(executor: Executor, task: StudentTask) -> Trained:
    """Train in a worker; in this process, when there are none, in a thread that a cancelled job stops."""
    if not isinstance(executor, InProcessExecutor):
        return await asyncio.wrap_future(executor.submit(train_student, task))
    stop = threading.Event()
    try:
        return await asyncio.to_thread(partial(train_student, task, stop))
    finally:
        stop.set()
