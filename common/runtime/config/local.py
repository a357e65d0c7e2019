"""The file of `vfl local`: every party of one machine inline, and one job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from common.runtime.config.data import DatasetConfig
from common.runtime.config.errors import FilePath, Name, Section, require, validated
from common.runtime.config.job_kinds import AnyTraining, require_algorithm
from common.runtime.config.party import Compute, Deadlines, Policy
from common.runtime.config.yaml_source import Document, Problem, read_document
from common.types import Role


class LocalParty(Section):
    """A party file without addresses, certificates and peers, which `vfl local` makes up."""

    party: Name
    role: Role
    state: FilePath | None = None
    datasets: dict[Name, DatasetConfig] = Field(default_factory=dict)
    policy: Policy = Policy()
    compute: Compute = Compute()
    deadlines: Deadlines = Deadlines()


class LocalConfig(Section):
    """All parties of one machine and the job that they run together."""

    parties: tuple[LocalParty, ...] = Field(min_length=1)
    job: AnyTraining

    @model_validator(mode="after")
    def _parties_fit_the_job(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        names = [party.party for party in self.parties]
        for index, party in enumerate(self.parties):
            if party.party in names[:index]:
                yield Problem(("parties", index, "party"), f'"{party.party}" stands twice')
            wanted = self.job.role_of(party.party)
            if wanted is None:
                yield Problem(("parties", index, "party"), f'"{party.party}" has no part in the job')
            elif wanted != party.role:
                yield Problem(
                    ("parties", index, "role"), f'should be {wanted}: the job names "{party.party}" as that'
                )
        for name in self.job.members:
            if name not in names:
                yield Problem(("job",), f'names "{name}", which is not among parties')


def load_local(path: Path) -> LocalConfig:
    """Read a LOCAL.yaml.

    Raises:
        ConfigError: Names every problem with its path and line.
    """
    return local_of(read_document(path))


def local_of(document: Document) -> LocalConfig:
    """Return a document that has been read as a local run."""
    require_algorithm(document, ("job",))
    return validated(LocalConfig, document)
