"""The job of the active party alone: what it could do without anybody, by the same objective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self, TypeAlias

from pydantic import Field, model_validator

from common.runtime.config.errors import Name, require
from common.runtime.config.job import JobConfig, JobData, JobModel
from common.runtime.config.job_base import JobBase
from common.runtime.config.yaml_source import Problem


class AloneModel(JobModel):
    """The objective; here the loss is named, because the algorithm does not say it."""

    loss: Literal["squared", "logistic"] = "squared"


class AloneJob(JobBase):
    """A model of the active party's own columns, fitted exactly and without any message."""

    algorithm: Literal["local"]
    passive: tuple[Name, ...] = Field(default=(), max_length=0)
    data: JobData
    model: AloneModel = AloneModel()

    @property
    def resumes(self) -> bool:
        """Whether the job goes on after a loss: it is fitted again, which takes nobody else."""
        return True

    @model_validator(mode="after")
    def _positive_is_for_classifiers(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        if self.data.positive is not None and self.model.loss != "logistic":
            yield Problem(("data", "positive"), "belongs to a classifier: model.loss: logistic")


# What makes a linear model out of columns and a label.
TrainingJob: TypeAlias = JobConfig | AloneJob
