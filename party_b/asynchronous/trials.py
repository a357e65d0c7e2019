"""`learning_rate: auto` in VFB²: the paper's grid, each step size tried on the same few batches (ADR 0014).

    for each step size:  StartOver → everybody is back at the start → the keeper alone dominates some batches,
                         with as many updates in flight as all dominators will have
                         → halt → everybody freezes → the objective, by masked sums
    the best one:        StartOver with trial 0 → training begins

A step size that leads out of the numbers one can compute with is given up by whoever meets them first
(`Derailed`), and counts as infinitely bad.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from common.errors import NumericError
from common.glm.asynchronous import Cut, EpochEnd
from common.glm.step_size import StepTrials
from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.vfb2.wire import end_message
from party_b.asynchronous.engine import KeeperEngine

# One epoch tells the step sizes apart; of many batches so many do.
_MOST_BATCHES = 500

CutExactly = Callable[[], Awaitable[Cut]]
Sum = Callable[[], Awaitable[None]]


class Trials:
    """Tries step sizes in one session; after a loss all of them are tried again."""

    def __init__(self, engine: KeeperEngine, exact_cut: CutExactly, sum_rows: Sum) -> None:
        """Use the keeper's ways to halt everybody and to sum up all rows."""
        self._engine = engine
        self._exact_cut = exact_cut
        self._sum_rows = sum_rows

    async def choose(self, start_objective: float) -> StepTrials:
        """Try all step sizes; everybody is at the start with the best one afterwards.

        Raises:
            JobError: None of them lowers the objective.
        """
        trials = StepTrials(start_objective)
        for number, step in enumerate(trials.remaining, start=1):
            await self._start_over(number, step)
            trials.record(step, await self._objective())
        await self._start_over(0, trials.chosen())
        return trials

    async def _start_over(self, trial: int, step: float) -> None:
        """Bring everybody back to the start, ourselves last: then nothing of before is on its way."""
        engine, answers = self._engine, self._engine.answers
        guests = engine.place.job.guests
        answers.started_over.clear()
        engine.tell(pb.DominatorWord(start_over=pb.StartOver(trial=trial, step=step)))
        await engine.until(lambda: all(answers.started_over.get(name) == trial for name in guests))
        await engine.settle()
        engine.begin_trial(trial, step)
        await engine.until(lambda: answers.started_over.get(engine.place.party) == trial)

    async def _objective(self) -> float:
        """Return where a step size leads, infinity when it leads nowhere."""
        engine = self._engine
        work, derailed = asyncio.ensure_future(self._run()), engine.answers.derailed
        try:
            either: set[asyncio.Future[Any]] = {work, derailed}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not derailed.done():
                return await work
        except NumericError:
            pass  # our own numbers: a step size as bad as any other that derails
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        engine.give_up()
        return math.inf

    async def _run(self) -> float:
        engine, limits = self._engine, self._engine.place.limits
        batches = min(-(-limits.train // limits.batch_size), _MOST_BATCHES)
        engine.go_alone(batches * limits.batch_size)
        progress = engine.collaboration.progress
        await engine.until(lambda: progress.rows >= batches * limits.batch_size)
        end = EpochEnd(engine.collaboration.epoch, await self._exact_cut())
        engine.end_epoch(end)
        await engine.until(lambda: engine.collaboration.epoch == end.epoch + 1)
        engine.tell(pb.DominatorWord(epoch_end=end_message(end)))
        frozen, guests = engine.answers.frozen, engine.place.job.guests
        await engine.until(lambda: all(frozen.get(name, -1) >= end.epoch for name in guests))
        await self._sum_rows()
        return engine.role.objective()
