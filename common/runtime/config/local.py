"""The file of `vfl local`: every party of one machine inline, and one job."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from common.runtime.config.data import DatasetConfig
from common.runtime.config.errors import FilePath, Name, Section, require, validated
from common.runtime.config.job_kinds import AnyTraining, any_job_of, require_algorithm
from common.runtime.config.party import Compute, Deadlines, PartyConfig, Policy, Prediction, load_party
from common.runtime.config.yaml_source import Document, Problem, YamlValue, read_document
from common.types import Role

# Whoever runs every party of a file on one machine has nobody to protect new rows from.
_ANY_NEW_ROWS = Prediction(rows_per_day=10**9, min_rows=1, online=True)

# What `vfl local` makes up: where a party is, and how its connections are protected.
_PLACE = {"listen", "advertise", "tls", "insecure", "peers"}


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

    @property
    def scorers(self) -> tuple[LocalParty, ...]:
        """Those whose parts of the model score new rows together."""
        return tuple(one for one in self.parties if one.role == "active" or one.party in self.job.scorers)

    def scoring(self) -> Self:
        """Return the same parties; where a policy is silent about new rows, they may be scored."""
        return self.model_copy(update={"parties": tuple(map(_scoring, self.parties))})


def _scoring(party: LocalParty) -> LocalParty:
    if party.role == "coordinator" or party.policy.prediction is not None:
        return party
    policy = party.policy.model_copy(update={"prediction": _ANY_NEW_ROWS})
    return party.model_copy(update={"policy": policy})


def load_local(path: Path) -> LocalConfig:
    """Read a LOCAL.yaml.

    Raises:
        ConfigError: Names every problem with its path and line.
    """
    return local_of(read_document(path))


def local_of(document: Document) -> LocalConfig:
    """Return a document that has been read as a local run; where it names files, these are read too."""
    whole = _with_named_files(document)
    require_algorithm(whole, ("job",))
    return validated(LocalConfig, whole)


def _with_named_files(document: Document) -> Document:
    """Put what the named party files and the named job file hold in the place of their names."""
    folder, data = document.path.parent, dict(document.data)
    parties = data.get("parties")
    if not isinstance(parties, list):
        return document
    if isinstance(named := data.get("job"), str):
        job = read_document(folder / named)
        any_job_of(job)
        data["job"] = job.data
    files = {name: load_party(folder / name) for name in parties if isinstance(name, str)}
    known = {file.party for file in files.values()}
    known |= {str(one.get("party")) for one in parties if isinstance(one, dict)}
    data["parties"] = [_without_place(files[one], known) if isinstance(one, str) else one for one in parties]
    return dataclasses.replace(document, data=data)


def _without_place(party: PartyConfig, known: set[str]) -> YamlValue:
    """Return a party file's own part; its policy keeps the peers that take part here."""
    values: dict[str, YamlValue] = party.model_dump(mode="json", exclude_unset=True, exclude=_PLACE)
    if "policy" in party.model_fields_set:
        values["policy"] = party.policy.model_dump(mode="json", exclude_unset=True) | {
            "peers": [name for name in party.policy.peers if name in known]
        }
    return values
