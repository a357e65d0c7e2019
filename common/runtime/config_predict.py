"""The job that scores new rows with a model that an earlier job left at every party."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import StringConstraints, model_validator

from common.runtime.config_errors import Name, require
from common.runtime.config_job_base import JobBase
from common.runtime.state import JOB_ID_PATTERN
from common.runtime.yaml_source import Problem
from common.types import Role

# As long as a name may be (config_errors.NAME_PATTERN).
_LONGEST_NAME = 63


def prediction_name(job: str) -> str:
    """Return the name of a prediction with a model that a job of this name trained."""
    return f"predict-{job}"[:_LONGEST_NAME]


class PredictJob(JobBase):
    """Scores of new rows: no key, no coordinator, no training.

    `batch` scores every common row once and ends. `online` keeps the aligned rows at hand, and scores those
    that are asked for until it is cancelled. Without passive parties the model is the active party's alone.
    `also_active` are further active parties that hold parts of a model (VFB²).
    """

    algorithm: Literal["predict"]
    also_active: tuple[Name, ...] = ()
    passive: tuple[Name, ...] = ()
    model: Annotated[str, StringConstraints(pattern=f"^{JOB_ID_PATTERN}$")]
    mode: Literal["batch", "online"] = "batch"

    @model_validator(mode="after")
    def _everybody_once(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        seen = {self.active}
        named = [(("also_active", index), name) for index, name in enumerate(self.also_active)]
        named += [(("passive", index), name) for index, name in enumerate(self.passive)]
        for path, name in named:
            if name in seen:
                yield Problem(path, f'"{name}" already has another part in this job')
            seen.add(name)

    @property
    def guests(self) -> tuple[str, ...]:
        """Everybody but the party that asks for scores."""
        return (*self.also_active, *self.passive)

    @property
    def members(self) -> tuple[str, ...]:
        """Every party of the job, the asking one first."""
        return (self.active, *self.guests)

    def role_of(self, party: str) -> Role | None:
        """Return the role that the job gives to a party, None when it names it nowhere."""
        return "active" if party in self.also_active else super().role_of(party)
