"""The epochs of a job that a party can go back to: one file each, complete or absent."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from common.runtime.state import JobStore, StateError, write_atomically

SECRET_FILE = "network.secret"  # noqa: S105 (a file's name)
_SECRET_BYTES = 32
_FILE = re.compile(r"run(\d+)-epoch(\d+)\.safetensors")


@dataclass(frozen=True, slots=True)
class EpochStore:
    """What a party's network was at the end of epochs; run and epoch name the file."""

    store: JobStore
    job_id: str

    def keep(self, run: int, epoch: int, network: bytes) -> None:
        """Keep the network as it is at the end of an epoch, durably."""
        self.store.write_bytes(self.job_id, _name(run, epoch), network)

    def load(self, run: int, epoch: int) -> bytes:
        """Return the network at the end of an epoch; UnknownJob when it was not kept."""
        return self.store.read_bytes(self.job_id, _name(run, epoch))

    def epochs(self, run: int) -> tuple[int, ...]:
        """Return the epochs of a run that were kept, ascending."""
        folder = self.store.job_dir(self.job_id)
        found = (_FILE.fullmatch(entry.name) for entry in folder.iterdir())
        return tuple(sorted(int(match[2]) for match in found if match and int(match[1]) == run))

    def forget(self, run: int, but: Collection[int] = ()) -> None:
        """Drop the epochs of a run, except some."""
        folder = self.store.job_dir(self.job_id)
        for epoch in set(self.epochs(run)) - set(but):
            path = folder / _name(run, epoch)
            try:
                path.unlink(missing_ok=True)
            except OSError as exc:
                raise StateError(f"cannot be removed: {exc.strerror}", where=str(path)) from exc


def party_secret(state: Path) -> bytes:
    """Return random bytes that are this party's own, made once; may be seen by it alone.

    They make the first weights of its networks: the same for the same seed of a job, known to nobody else.
    """
    path = state / SECRET_FILE
    try:
        if not path.exists():
            write_atomically(path, secrets.token_bytes(_SECRET_BYTES))
        return path.read_bytes()
    except OSError as exc:
        raise StateError(f"cannot be kept: {exc.strerror}", where=str(path)) from exc


def _name(run: int, epoch: int) -> str:
    return f"run{run}-epoch{epoch}.safetensors"
