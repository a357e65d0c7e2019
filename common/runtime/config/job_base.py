"""What every kind of job says: its name, its kind, who takes part, and on which data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from pydantic import Field

from common.runtime.config.errors import Name, Section
from common.runtime.config.yaml_source import KeyPath, Problem
from common.types import Role


class JobRows(Section):
    """Which rows a job is about: a name that each party looks up in its own party file."""

    dataset: Name


class JobBase(Section):
    """One job, the same for every party that takes part in it."""

    job: Name
    algorithm: str
    active: Name
    passive: tuple[Name, ...] = Field(min_length=1)
    data: JobRows

    @property
    def members(self) -> tuple[str, ...]:
        """Every party of the job, the active one first."""
        return (self.active, *self.passive)

    @property
    def guests(self) -> tuple[str, ...]:
        """Everybody else whose rows are aligned, in the order in which ids pass them."""
        return self.passive

    @property
    def most_rounds(self) -> int:
        """How many rounds the job takes at most; 0 for a job without rounds."""
        return 0

    @property
    def takes_sparse_columns(self) -> bool:
        """Whether `Table.sparse` is trained on as it is; otherwise sparse columns are written out."""
        return False

    @property
    def resumes(self) -> bool:
        """Whether the job goes on from what is on the disks after a party was lost and came back."""
        return False

    @property
    def scorers(self) -> tuple[str, ...]:
        """Who scores new rows together with the active party; nobody where the model is its alone."""
        return self.passive

    def role_of(self, party: str) -> Role | None:
        """Return the role that the job gives to a party, None when it names it nowhere."""
        if party == self.active:
            return "active"
        return "passive" if party in self.passive else None

    def named_twice(self) -> Iterator[Problem]:
        """Yield a problem for every party that has two parts in the job."""
        seen = {self.active}
        for key in ("also_active", "passive", "coordinator"):
            named: tuple[str, ...] | str | None = getattr(self, key, None)
            for index, name in enumerate((named,) if isinstance(named, str) else named or ()):
                path: KeyPath = (key,) if isinstance(named, str) else (key, index)
                if name in seen:
                    yield Problem(path, f'"{name}" already has another part in this job')
                seen.add(name)

    def canonical_json(self) -> bytes:
        """Return the one spelling of this job, which parties compare by its digest."""
        values = self.model_dump(mode="json")
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    def digest(self) -> bytes:
        """Return the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical_json()).digest()


class JointJob(JobBase):
    """A job in which several active parties may take part; the first one conducts."""

    also_active: tuple[Name, ...] = ()
    passive: tuple[Name, ...] = ()

    @property
    def guests(self) -> tuple[str, ...]:
        """Everybody but the conducting party."""
        return (*self.also_active, *self.passive)

    @property
    def members(self) -> tuple[str, ...]:
        """Every party of the job, the conducting one first."""
        return (self.active, *self.guests)

    def role_of(self, party: str) -> Role | None:
        """Return the role that the job gives to a party, None when it names it nowhere."""
        return "active" if party in self.also_active else super().role_of(party)
