"""The job of the active party alone: what it could do without anybody, by the same objective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self, TypeAlias

from pydantic import model_validator

from common.runtime.config.errors import Name, Section, require
from common.runtime.config.job import JobConfig, JobData, JobModel, Seed
from common.runtime.config.job_base import JobBase
from common.runtime.config.yaml_source import Problem
from common.types import Role


class AloneModel(JobModel):
    """The objective; here the loss is named, because the algorithm does not say it."""

    loss: Literal["squared", "logistic"] = "squared"


class AloneTrain(Section):
    """What every kind of job may say here; an exact fit takes no steps and draws no numbers."""

    learning_rate: Literal["auto"] = "auto"
    seed: Seed = 0


class AloneJob(JobBase):
    """A model of the active party's own columns, fitted exactly and without any message.

    Other parties may be named, as other jobs do, and have no part.
    """

    algorithm: Literal["local"]
    passive: tuple[Name, ...] = ()
    coordinator: Name | None = None
    data: JobData
    model: AloneModel = AloneModel()
    train: AloneTrain = AloneTrain()

    @property
    def members(self) -> tuple[str, ...]:
        """The active party."""
        return (self.active,)

    @property
    def guests(self) -> tuple[str, ...]:
        """Nobody."""
        return ()

    @property
    def scorers(self) -> tuple[str, ...]:
        """Nobody."""
        return ()

    def role_of(self, party: str) -> Role | None:
        """Return the role that the job gives to a party; all but the active one stand by."""
        return "coordinator" if party == self.coordinator else super().role_of(party)

    @property
    def resumes(self) -> bool:
        """Whether the job goes on after a loss: it is fitted again, which takes nobody else."""
        return True

    @model_validator(mode="after")
    def _positive_is_for_classifiers(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        yield from self.named_twice()
        if self.data.positive is not None and self.model.loss != "logistic":
            yield Problem(("data", "positive"), "belongs to a classifier: model.loss: logistic")


# What makes a linear model out of columns and a label.
TrainingJob: TypeAlias = JobConfig | AloneJob
