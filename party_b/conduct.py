"""Runs a job of any kind to its end, and tells everybody how it ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from common.errors import ColonnadeError
from common.rpc.pb import job_pb2 as pb
from common.runtime.config.alone import AloneJob
from common.runtime.config.networks import NetJob
from common.runtime.config.predict import PredictJob
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.hosting import is_loss
from common.runtime.saved_network import is_network
from party_b.alone import AloneConductor
from party_b.asynchronous.conductor import Vfb2Conductor
from party_b.asynchronous.desk import ConductedDesk
from party_b.job_life import JobLife, Tools
from party_b.jobs import ActiveJob
from party_b.networks.conductor import NetConductor
from party_b.networks.prediction import NetPredictionConductor
from party_b.prediction import PredictionConductor
from party_b.regression.conductor import RegressionConductor
from party_b.regression.rounds_choice import settle_rounds
from party_b.scoring_desk import ScoringDesk


@dataclass(frozen=True, slots=True)
class Desks:
    """Where calls of others find the jobs that run here."""

    scoring: ScoringDesk
    training: ConductedDesk


class Conductor(Protocol):
    """One algorithm from its opening to its report."""

    life: JobLife

    async def run(self) -> None:
        """Run the job; everything that it leaves is on the disk, and every party has closed it."""


class _AttemptLostError(Exception):
    """A party was lost, and the job can go on in another attempt."""


async def conduct(active: ActiveJob, tools: Tools, desks: Desks) -> None:
    """Run a job to its end, in as many attempts as it takes.

    Raises:
        ColonnadeError: It did not end well; every party that could be reached has been told.
    """
    await settle_rounds(active, tools.own)
    lives: list[JobLife] = []
    try:
        while True:
            conductor = _conductor(active, tools, desks)
            lives.append(conductor.life)
            try:
                await _attempt(conductor, lives, active, tools.own.party)
            except _AttemptLostError:
                continue
            return
    finally:
        for life in lives:
            await life.disconnect()
        tools.wiretap.forget(active.job_id)


async def _attempt(conductor: Conductor, lives: list[JobLife], active: ActiveJob, own: str) -> None:
    """Run one attempt to its end, or to a loss after which another one makes sense.

    The attempt before stays present until this one is: the others would miss us while we wait for the lost
    party.

    Raises:
        _AttemptLostError: There was such a loss; nobody has been told that the job ended.
        ColonnadeError: The job is over.
    """
    life = conductor.life
    try:
        if active.attempt:
            await active.enter("opening", f"going on after a loss: {active.losses[-1]}")
            await life.until_all_answer()
        try:
            if active.attempt:
                await life.rejoin(lives[:-1])
            await conductor.run()
        except ColonnadeError as exc:
            if not is_loss(active.config, exc) or life.stays_away or not active.may_go_on():
                raise
            active.note_loss(exc.what)
            active.keep()
            raise _AttemptLostError from exc
    except _AttemptLostError:
        raise
    except asyncio.CancelledError:
        await life.abandon(pb.CANCELLED, active.cancelled_because)
        raise
    except Exception as exc:
        reason = exc.what if isinstance(exc, ColonnadeError) else f"a bug at {own}"
        await life.abandon(pb.FAILED, reason)
        raise


def _conductor(active: ActiveJob, tools: Tools, desks: Desks) -> Conductor:
    job = active.config
    if isinstance(job, PredictJob):
        kind = NetPredictionConductor if is_network(tools.store, job.model) else PredictionConductor
        return kind(active, job, tools, desks.scoring)
    if isinstance(job, Vfb2Job):
        return Vfb2Conductor(active, job, tools, desks.training)
    if isinstance(job, AloneJob):
        return AloneConductor(active, job, tools)
    if isinstance(job, NetJob):
        return NetConductor(active, job, tools)
    return RegressionConductor(active, job, tools)
