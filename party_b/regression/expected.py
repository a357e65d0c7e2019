"""What a job was expected to cost, for the report's comparison with what happened."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from common.errors import ColonnadeError
from common.runtime.calibration import Calibration, Machine, cache_folder, calibration, this_machine
from common.runtime.config.job import JobConfig
from common.runtime.config.party import PartyConfig
from common.runtime.estimate import Estimate, Rounds, estimate
from common.runtime.estimate_inputs import place_of, shape_of_design
from common.runtime.linear_design import LinearDesign

log = logging.getLogger("vfl.party_b")


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast this machine is, and how much of it is free, before the job begins."""

    calibration: Calibration
    machine: Machine


def measured_speed(own: PartyConfig, job: JobConfig) -> Speed | None:
    """Return the speed of this machine; None where the model says nothing about a job's arithmetic."""
    if job.crypto.backend == "phe":
        return None
    return Speed(calibration(job.crypto.key_bits, cache_folder(own.state)), this_machine())


def expected_cost(
    own: PartyConfig,
    job: JobConfig,
    speed: Speed | None,
    design: LinearDesign,
    parties: tuple[Mapping[str, int], Mapping[str, int]],
) -> Estimate | None:
    """Return what the job will cost; `parties` has the columns and the rows of each."""
    if speed is None:
        return None
    try:
        shape = shape_of_design(job, design, *parties)
        kind: Rounds = "gram" if job.uses_gram else "rowwise"
        return estimate(shape, kind, speed.calibration, speed.machine, place_of(own))
    except (ColonnadeError, ArithmeticError) as exc:
        # A job that can run must not fail because nobody can say how long it takes.
        log.warning("the cost of job %s could not be estimated: %s", job.job, type(exc).__name__)
        return None
