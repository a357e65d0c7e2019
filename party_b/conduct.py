"""Runs a job of any kind to its end, and tells everybody how it ended."""

from __future__ import annotations

import asyncio
from typing import Protocol

from common.errors import ColonnadeError
from common.rpc.pb import job_pb2 as pb
from common.runtime.config_alone import AloneJob
from common.runtime.config_predict import PredictJob
from party_b.alone import AloneConductor
from party_b.conductor import RegressionConductor
from party_b.job_life import JobLife, Tools
from party_b.jobs import ActiveJob
from party_b.prediction import PredictionConductor
from party_b.scoring_desk import ScoringDesk


class Conductor(Protocol):
    """One algorithm from its opening to its report."""

    life: JobLife

    async def run(self) -> None:
        """Run the job; everything that it leaves is on the disk, and every party has closed it."""


async def conduct(active: ActiveJob, tools: Tools, desk: ScoringDesk) -> None:
    """Run a job to its end.

    Raises:
        ColonnadeError: It did not end well; every party that could be reached has been told.
    """
    conductor = _conductor(active, tools, desk)
    try:
        await conductor.run()
    except asyncio.CancelledError:
        await conductor.life.abandon(pb.CANCELLED, active.cancelled_because)
        raise
    except Exception as exc:
        reason = exc.what if isinstance(exc, ColonnadeError) else f"a bug at {tools.own.party}"
        await conductor.life.abandon(pb.FAILED, reason)
        raise
    finally:
        await conductor.life.disconnect()


def _conductor(active: ActiveJob, tools: Tools, desk: ScoringDesk) -> Conductor:
    job = active.config
    if isinstance(job, PredictJob):
        return PredictionConductor(active, job, tools, desk)
    if isinstance(job, AloneJob):
        return AloneConductor(active, job, tools)
    return RegressionConductor(active, job, tools)
