"""Training at the active party: the role that the job asks for, and its rounds until they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from common.crypto.cipher import Cipher
from common.crypto.entropy import SystemEntropy
from common.crypto.fixed_point import FixedPoint
from common.crypto.limits import check_resolution
from common.errors import JobError, LocalProtocolError
from common.glm.conjugate import ConjugateScalars, Turn
from common.glm.labels import signed_labels
from common.glm.solvers import BlockSolver, ConjugateBlock
from common.runtime.checkpoint import Checkpoint
from common.runtime.config.job import JobConfig
from common.runtime.linear_design import LinearDesign
from common.runtime.linear_solver import active_solver, gram_tools, prove_gram_plan
from common.runtime.noise_ahead import NoiseAhead
from common.runtime.stopwatch import Stopwatch
from common.types import Floats
from party_b.he_gram import ActiveGram
from party_b.he_linear import ActiveRegression, LabelledRows
from party_b.regression.convergence import Convergence
from party_b.regression.gram_rounds import GramRounds
from party_b.regression.rounds import Peers, RoundResult, Rounds, RowwiseRounds, Tell
from party_b.regression.training_log import KeptRound, TrainingLog

_NO_TURN = Turn(0.0, 1.0)

# Takes a round's number and its loss, None if nobody knows it.
RoundDone = Callable[[int, float | None], Awaitable[None]]


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What is trained.

    Attributes:
        job: The job.
        design: The active party's columns.
        targets: y as the loss takes it, for the training rows, (n,).
        columns: Of every party, the active one's intercept included.
        learning_rate: Of gradient descent.
    """

    job: JobConfig
    design: LinearDesign
    targets: Floats = field(repr=False)
    columns: Mapping[str, int]
    learning_rate: float


class Training:
    """One job's rounds, as the active party conducts them."""

    def __init__(
        self, problem: Problem, cipher: Cipher, peers: Peers, watch: Stopwatch, log: TrainingLog
    ) -> None:
        self.losses: list[float | None] = []
        self.converged = False
        self._log = log
        self._turned = _NO_TURN
        self._convergence = Convergence(problem.job.train.tolerance, problem.design.schedule.batches)
        self._job = problem.job
        self._cipher = cipher
        self._peers = peers
        self._solver, self._scalars = active_solver(
            problem.design, problem.job, problem.learning_rate, problem.targets
        )
        self._rounds = _rounds(problem, self._solver, cipher, peers, watch, log.checkpoint)

    @property
    def weights(self) -> Floats:
        """The active party's weights so far."""
        return self._solver.weights

    async def go_on(self) -> int:
        """Continue after the last round that all parties have kept; return its number.

        We keep a round after the others have applied it, so our last one is the last that all can have.

        Raises:
            JobError: A passive party has not kept it.
        """
        passive = self._peers.passive
        last = await asyncio.to_thread(self._log.last)
        number = 0 if last is None else last.number
        answers = await asyncio.gather(*(client.stand() for client in passive))
        standings = {client.name: answer for client, answer in zip(passive, answers, strict=True)}
        lacking = [name for name, standing in standings.items() if number not in standing.rounds]
        if lacking:
            raise JobError(f"the job cannot go on after round {number}: {', '.join(lacking)} has not kept it")
        shares = await asyncio.to_thread(self._rounds.recall_shares, standings)
        if last is not None:
            self._restore(last)
        await asyncio.gather(*(client.go_on(number, shares[client.name]) for client in passive))
        return number

    async def share(self, tell: Tell) -> None:
        """Do what the rounds need once: in Gram rounds, share the cross products."""
        await self._rounds.share(tell)

    async def run(self, executor: Executor, round_done: RoundDone) -> None:
        """Train until the rounds are used up or the tolerance is met; `round_done` is told each round."""
        if self.converged:
            return
        ahead = NoiseAhead(self._cipher, executor, self._rounds.sealed_in_round)
        try:
            await self._train(round_done)
        finally:
            ahead.finish()

    async def _train(self, round_done: RoundDone) -> None:
        settled = asyncio.ensure_future(self._goes_on())
        try:
            for number in range(len(self.losses) + 1, self._job.train.max_rounds + 1):
                if isinstance(self._solver, ConjugateBlock):
                    # The first thing that the others are asked for tells them scalars of the round before.
                    if not await settled:
                        return
                    if number > 1:
                        self._solver.turn(self._turned.mixing, self._turned.scale)
                result = await self._rounds.run(number, self._turned, settled)
                if result is None:
                    return
                if self._scalars is not None:
                    self._turned = await self._step(self._scalars, number, result)
                settled = asyncio.ensure_future(self._settle(number, result, round_done))
            await settled
        finally:
            settled.cancel()
            await asyncio.gather(settled, return_exceptions=True)

    async def _goes_on(self) -> bool:
        return not self.converged

    async def _settle(self, number: int, result: RoundResult, round_done: RoundDone) -> bool:
        """Learn a round's loss, tell it, and keep the round; return whether another one is to follow."""
        loss = await result.loss()
        if self._scalars is not None:
            loss = self._scalars.objective if self._job.train.has_loss(number) else None
        self.losses.append(loss)
        await round_done(number, loss)
        self.converged = self._scalars.converged if self._scalars else self._convergence.settled(loss)
        await asyncio.to_thread(self._log.keep, self._kept(number))
        return not self.converged

    def _kept(self, number: int) -> KeptRound:
        scalars = None if self._scalars is None else self._scalars.state()
        state = self._solver.state()
        return KeptRound(number, self.losses, self.converged, state, self._turned, scalars)

    def _restore(self, last: KeptRound) -> None:
        self._rounds.go_on(last.number, last.solver)
        self.losses, self.converged, self._turned = list(last.losses), last.converged, last.turned
        if self._scalars is not None and last.scalars is not None:
            self._scalars.restore(last.scalars)
        if self._scalars is None:
            for loss in last.losses:  # what the losses told then they tell again
                self._convergence.settled(loss)

    async def _step(self, scalars: ConjugateScalars, number: int, result: RoundResult) -> Turn:
        """Let every party move along its direction; return what the next direction takes."""
        own = self._solver
        if not isinstance(own, ConjugateBlock):
            raise LocalProtocolError("only conjugate gradients take steps between rounds")
        step = scalars.step(result.curvature + own.curvature_part())
        parts = await asyncio.gather(*(client.take_step(number, step) for client in self._peers.passive))
        return scalars.turn(own.advance(step) + sum(parts))


def targets_of(labels: Floats, job: JobConfig) -> Floats:
    """Return the labels as the job's loss takes them: −1 and +1 for a classifier.

    Raises:
        DataError: A classifier's labels are not two values.
    """
    return signed_labels(labels, job.data.label).values if job.algorithm == "he_logistic" else labels


def require_resolution(problem: Problem) -> None:
    """Refuse labels whose differences the rounds would round away, so that nothing could be learnt.

    Raises:
        NumericError: They vary by less than a few rounding steps.
    """
    job, varying = problem.job, problem.targets
    if job.data.intercept:
        varying = varying - varying.mean()
    spread = np.full((1, 1), np.sqrt(np.mean(varying**2)))
    if spread[0, 0] > np.finfo(float).eps * np.abs(problem.targets).max():  # else they are constant
        check_resolution(spread, (job.data.label,), job.crypto.precision_bits)


def describe_solver(problem: Problem) -> str:
    """Return how the weights are found, in a few words."""
    rounds = "Gram rounds" if problem.job.uses_gram else "row-wise rounds"
    if problem.job.train.solver == "cg":
        return f"conjugate gradients, {rounds}"
    return f"gradient descent with step size {problem.learning_rate:.4g}, {rounds}"


def describe_plan(problem: Problem) -> str:
    """Return what is proved about the rounds' slots besides the ranges; empty for row-wise rounds."""
    if not problem.job.uses_gram:
        return ""
    return prove_gram_plan(problem.job, len(problem.targets), problem.columns).describe()


def _rounds(
    problem: Problem,
    solver: BlockSolver,
    cipher: Cipher,
    peers: Peers,
    watch: Stopwatch,
    checkpoint: Checkpoint,
) -> Rounds:
    job, design = problem.job, problem.design
    rows = LabelledRows(design.matrix[design.train], problem.targets)
    if not job.uses_gram:
        scale, entropy = FixedPoint(job.crypto.precision_bits), SystemEntropy()
        role = ActiveRegression(rows, design.schedule, solver, cipher, scale, entropy)
        return RowwiseRounds(job, role, cipher, peers, watch)
    tools = gram_tools(job, len(problem.targets), problem.columns, cipher)
    passive = {party: count for party, count in problem.columns.items() if party != job.active}
    gram = ActiveGram(rows, solver, tools, passive)
    return GramRounds(job, gram, cipher.key, peers, watch, checkpoint)
