"""`crypto.rounds: auto`: the active party chooses, before anybody opens the job; the choice travels in it.

Every party then works on a job that says `rowwise` or `gram`, and its digest is that of the job as it is run:
no two of them can come to different conclusions.
"""

from __future__ import annotations

import asyncio
import logging

from common.errors import ColonnadeError, NumericError
from common.runtime.config.job import JobConfig
from common.runtime.config.party import PartyConfig
from common.runtime.estimate import Rounds, estimate
from common.runtime.estimate_inputs import place_of, shape_of_party
from party_b.jobs import ActiveJob
from party_b.regression.expected import measured_speed

log = logging.getLogger("vfl.party_b")

_NAMES: dict[Rounds, str] = {"rowwise": "row-wise rounds", "gram": "Gram rounds"}


async def settle_rounds(active: ActiveJob, own: PartyConfig) -> None:
    """Put the chosen kind of rounds in the job's place of `auto`, durably, and note why for its report."""
    job = active.config
    if not isinstance(job, JobConfig) or job.crypto.rounds != "auto":
        return
    await active.enter("opening", "choosing between row-wise and Gram rounds")
    chosen, because = await asyncio.to_thread(choose, own, job)
    active.config = job.with_rounds(chosen)
    active.remarks.append(f"crypto.rounds: auto chose {_NAMES[chosen]}: {because}")
    log.info("job %s: %s", active.job_id, active.remarks[-1])
    await asyncio.to_thread(active.keep)


def choose(own: PartyConfig, job: JobConfig) -> tuple[Rounds, str]:
    """Return the kind of rounds that is estimated to train sooner, and why.

    What only the other parties know is taken to be as here: their numbers of columns, and that all rows are
    common. A wrong guess costs time and nothing else.
    """
    if job.train.batch_size is not None:
        return "rowwise", "mini-batches have no others"
    try:
        seconds = _seconds(own, job)
    except (ColonnadeError, ArithmeticError) as exc:
        # What is wrong with the data or the key is said when the job opens; here nothing depends on it.
        log.warning("the rounds of job %s could not be estimated: %s", job.job, type(exc).__name__)
        return "gram", "there is no estimate, and they cost the same however many rows there are"
    chosen = min(seconds, key=lambda kind: seconds[kind])
    other: Rounds = "gram" if chosen == "rowwise" else "rowwise"
    return chosen, (
        f"training is estimated at {seconds[chosen]:.3g} s with them and {seconds[other]:.3g} s with "
        f"{_NAMES[other]}, if {', '.join(job.passive)} has as many columns as {job.active} and all rows are "
        "common"
    )


def _seconds(own: PartyConfig, job: JobConfig) -> dict[Rounds, float]:
    """Return the estimated seconds of training with each kind of rounds."""
    speed = measured_speed(own, job)
    if speed is None:
        raise NumericError(f"nothing is known about the speed of crypto.backend: {job.crypto.backend}")
    shape, place = shape_of_party(own, job, {}), place_of(own)
    return {
        kind: estimate(shape, kind, speed.calibration, speed.machine, place).seconds["training"]
        for kind in _NAMES
    }
