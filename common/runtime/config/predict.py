"""The job that scores new rows with a model that an earlier job left at every party."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import StringConstraints, model_validator

from common.runtime.config.errors import require
from common.runtime.config.job_base import JointJob
from common.runtime.state import JOB_ID_PATTERN

# As long as a name may be (config_errors.NAME_PATTERN).
_LONGEST_NAME = 63


def prediction_name(job: str) -> str:
    """Return the name of a prediction with a model that a job of this name trained."""
    return f"predict-{job}"[:_LONGEST_NAME]


class PredictJob(JointJob):
    """Scores of new rows: no key, no coordinator, no training.

    `batch` scores every common row once and ends. `online` keeps the aligned rows at hand, and scores those
    that are asked for until it is cancelled. Without passive parties the model is the active party's alone.
    `also_active` are further active parties that hold parts of a model (VFB²).
    """

    algorithm: Literal["predict"]
    model: Annotated[str, StringConstraints(pattern=f"^{JOB_ID_PATTERN}$")]
    mode: Literal["batch", "online"] = "batch"

    @model_validator(mode="after")
    def _everybody_once(self) -> Self:
        require(self.named_twice())
        return self
