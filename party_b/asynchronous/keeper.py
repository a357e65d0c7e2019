"""The keeper of the epochs in VFB²: the first active party, while training lasts (ADR 0014).

    settle    everybody freezes at the last cut → the objective, by masked sums → SVRG: θ̃ to everybody
    go        dominators begin updates; the keeper counts the rows of all
    end       the cut; with SVRG, in mode sync and in the last epoch, dominators halt first: it is exact

All of it can be begun again at any place: what has been decided is on the disk before anybody is told, and
saying it again changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import numpy as np

from common.glm.asynchronous import Cut, EpochEnd, ReferencePart
from common.glm.epochs import EpochKeeper
from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.vfb2.wire import ROWS_PER_PIECE, ROWS_PER_REFERENCE, end_message
from common.types import Floats
from party_b.asynchronous.dominating import steps_of_epoch
from party_b.asynchronous.engine import KeeperEngine
from party_b.asynchronous.epochs import EpochBook
from party_b.asynchronous.trials import Trials

# Is told the number of an epoch, and the objective at its end.
EpochDone = Callable[[int, float], Awaitable[None]]


class Keeper:
    """Training from wherever everybody stands to its end."""

    def __init__(self, engine: KeeperEngine, book: EpochBook, epoch_done: EpochDone) -> None:
        """Go on with what was decided before."""
        train = engine.place.job.train
        self._engine = engine
        self._book = book
        self._epoch_done = epoch_done
        self._epochs = EpochKeeper(engine.place.limits.train, train.epochs, train.tolerance)
        for epoch, objective in enumerate(book.objectives):
            self._epochs.judge(epoch, objective)
        self._halted = True
        self._judged_at = time.monotonic()

    async def run(self) -> None:
        """Train in one session until training ends; every party has finished then."""
        self._halted = True  # a session begins with everybody at rest
        if self._book.end is None:
            await self._end_epoch(dict.fromkeys(self._engine.place.limits.dominators, 0))
        if not self._chooses or not self._everybody_began():
            await self._settle()
        if self._chooses:
            await self._choose_step()
        while not self._book.ending:
            await self._run_epoch()
            await self._settle()
        await self._finish()

    @property
    def _chooses(self) -> bool:
        """Whether a step size is still to be found."""
        return self._engine.place.job.train.learning_rate == "auto" and self._book.learning_rate is None

    def _everybody_began(self) -> bool:
        """Whether every party has been at the start of updates, so that step sizes may have been tried."""
        engine, answers = self._engine, self._engine.answers
        refers = engine.place.job.train.update == "svrg"

        def began(name: str) -> bool:
            frozen = answers.frozen.get(name, -1)
            return frozen >= 1 or (frozen == 0 and (not refers or answers.referred.get(name, -1) >= 0))

        here = engine.collaboration
        own = here.epoch > 1 or (here.epoch == 1 and here.phase == "updating")
        return own and bool(self._book.objectives) and all(map(began, engine.place.job.guests))

    async def _choose_step(self) -> None:
        trials = Trials(self._engine, self._exact_cut, self._sum_training_rows)
        found = await trials.choose(self._book.objectives[0])
        await asyncio.to_thread(self._book.choose, found.chosen(), found.describe())
        self._judged_at = time.monotonic()

    async def measure(self) -> tuple[Floats, Floats]:
        """Sum up the scores of all training and test rows at the final blocks, for the keeper alone."""
        role, limits = self._engine.role, self._engine.place.limits
        await self._sum_training_rows()
        asked = role.ask_test_scores(limits.test, ROWS_PER_PIECE)
        await self._engine.sums_of(asked)
        test = np.concatenate([role.opened(request) for request in asked]) if asked else np.zeros(0)
        return role.joint_scores(), test

    async def _settle(self) -> None:
        """Bring everybody to the last end, measure there, and with SVRG hand out θ̃."""
        engine, collaboration, end = self._engine, self._engine.collaboration, self._book.require_end()
        if end.epoch == collaboration.epoch:
            engine.end_epoch(end)
        await engine.until(lambda: collaboration.epoch == end.epoch + 1)
        engine.tell(pb.DominatorWord(epoch_end=end_message(end)))
        guests = engine.place.job.guests
        await engine.until(lambda: all(engine.answers.frozen.get(name, -1) >= end.epoch for name in guests))
        judged = len(self._book.objectives) > end.epoch
        if not judged or (collaboration.phase == "referring" and not self._book.ending):
            await self._sum_training_rows()
        if not judged:
            await self._judge(end.epoch)
        if engine.place.job.train.update == "svrg" and not self._book.ending:
            await self._hand_out_reference(end.epoch)

    async def _sum_training_rows(self) -> None:
        engine = self._engine
        requests = engine.role.ask_measure(ROWS_PER_PIECE)
        await engine.sums_of(requests)
        for request in requests:
            engine.role.take_measure(request.number)

    async def _judge(self, epoch: int) -> None:
        objective = self._engine.role.objective()
        verdict = self._epochs.judge(epoch, objective)
        before, self._judged_at = self._judged_at, time.monotonic()
        await asyncio.to_thread(self._book.add_objective, objective, self._judged_at - before)
        if verdict.last:
            await asyncio.to_thread(self._book.stop, verdict.because, verdict.converged)
        self._engine.tell(pb.DominatorWord(verdict=pb.EpochVerdict(epoch=epoch, objective=objective)))
        await self._epoch_done(epoch, objective)

    async def _hand_out_reference(self, epoch: int) -> None:
        """Give θ̃ of the last snapshot to whoever waits for it."""
        engine, answers = self._engine, self._engine.answers
        guests = engine.place.job.guests
        own_waits = engine.collaboration.phase == "referring"
        parts = engine.role.reference(ROWS_PER_REFERENCE) if own_waits else self._known_reference(epoch)
        words = await asyncio.to_thread(engine.reference_words, parts)
        for name in guests:
            if answers.referred.get(name, -1) < epoch:
                for word in words:
                    engine.tell_one(name, word)
        if own_waits:
            engine.refer_to(parts)
            await engine.until(lambda: answers.referred.get(engine.place.party, -1) == epoch)
        await engine.until(lambda: all(answers.referred.get(name, -1) >= epoch for name in guests))

    def _known_reference(self, epoch: int) -> list[ReferencePart]:
        thetas = self._engine.collaboration.block.rule.tables()["reference"]
        begins = range(0, len(thetas), ROWS_PER_REFERENCE)
        return [ReferencePart(epoch, begin, thetas[begin : begin + ROWS_PER_REFERENCE]) for begin in begins]

    async def _run_epoch(self) -> None:
        """Let dominators go until the epoch has seen its rows, and decide on its cut."""
        engine, job = self._engine, self._engine.place.job
        epoch, progress = engine.collaboration.epoch, engine.collaboration.progress
        is_sync = job.train.mode == "sync"
        self._halted = False
        engine.go(epoch)
        if is_sync:
            cut: Cut = dict.fromkeys(job.dominators, epoch * steps_of_epoch(engine.place))
            await engine.until(lambda: progress.covers(cut))
        else:
            await engine.until(lambda: self._epochs.due(epoch, progress.rows))
            exact = job.train.update == "svrg" or epoch >= job.train.epochs
            cut = await self._exact_cut() if exact else progress.counts
        await self._end_epoch(cut)

    async def _exact_cut(self) -> Cut:
        """Let every dominator halt, and return how many updates each has made."""
        engine = self._engine
        engine.halt()
        self._halted = True
        dominators = engine.place.limits.dominators
        await engine.until(lambda: all(name in engine.answers.halted for name in dominators))
        cut = dict(engine.answers.halted)
        await engine.until(lambda: engine.collaboration.progress.covers(cut))
        return cut

    async def _end_epoch(self, cut: Cut) -> None:
        """Decide on a cut, on the disk, before anybody hears of it."""
        end = EpochEnd(self._engine.collaboration.epoch, cut)
        await asyncio.to_thread(self._book.decide, end)

    async def _finish(self) -> None:
        """End training with everybody, at an exact cut whose objective is known."""
        engine = self._engine
        if engine.collaboration.phase != "finished":
            cut = await self._exact_cut()
            if cut != dict(self._book.require_end().cut):
                # Updates went on while the last objective was summed up; the model's own is to be reported.
                await self._end_epoch(cut)
                await self._settle()
        engine.finish(self._book.require_end())
        members = engine.place.job.members
        await engine.until(lambda: all(name in engine.answers.finished for name in members))
