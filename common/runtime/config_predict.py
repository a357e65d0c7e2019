"""The job that scores new rows with a model that an earlier job left at every party."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import StringConstraints, model_validator

from common.runtime.config_errors import Name, require
from common.runtime.config_job_base import JobBase
from common.runtime.state import JOB_ID_PATTERN
from common.runtime.yaml_source import Problem

# As long as a name may be (config_errors.NAME_PATTERN).
_LONGEST_NAME = 63


def prediction_name(job: str) -> str:
    """Return the name of a prediction with a model that a job of this name trained."""
    return f"predict-{job}"[:_LONGEST_NAME]


class PredictJob(JobBase):
    """Scores of new rows: no key, no coordinator, no training.

    `batch` scores every common row once and ends. `online` keeps the aligned rows at hand, and scores those
    that are asked for until it is cancelled. Without passive parties the model is the active party's alone.
    """

    algorithm: Literal["predict"]
    passive: tuple[Name, ...] = ()
    model: Annotated[str, StringConstraints(pattern=f"^{JOB_ID_PATTERN}$")]
    mode: Literal["batch", "online"] = "batch"

    @model_validator(mode="after")
    def _everybody_once(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        for index, name in enumerate(self.passive):
            if name in (self.active, *self.passive[:index]):
                yield Problem(("passive", index), f'"{name}" already has another part in this job')
