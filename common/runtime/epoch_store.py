"""The epochs of a job that a party can go back to, and its own secret."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from common.errors import UnknownJob
from common.runtime.checkpoint import Checkpoint
from common.runtime.state import StateError, make_folder, write_atomically, write_once

SECRET_FILE = "network.secret"  # noqa: S105 (a file's name)
_SECRET_BYTES = 32
_FILE = re.compile(r"run(\d+)-epoch(\d+)\.safetensors")


@dataclass(frozen=True, slots=True)
class EpochStore:
    """Files of a job's checkpoint that are no JSON: whole or absent, and gone when the job ends."""

    checkpoint: Checkpoint

    def keep(self, run: int, epoch: int, network: bytes) -> None:
        """Keep the network as it is at the end of an epoch, durably."""
        self.write(_name(run, epoch), network)

    def load(self, run: int, epoch: int) -> bytes:
        """Return the network at the end of an epoch; UnknownJob when it was not kept."""
        return self.read(_name(run, epoch))

    def epochs(self, run: int) -> tuple[int, ...]:
        """Return the epochs of a run that were kept, ascending."""
        folder = self.checkpoint.folder
        names = (entry.name for entry in folder.iterdir()) if folder.is_dir() else ()
        found = (_FILE.fullmatch(name) for name in names)
        return tuple(sorted(int(match[2]) for match in found if match and int(match[1]) == run))

    def forget(self, run: int, but: Collection[int] = ()) -> None:
        """Drop the epochs of a run, except some."""
        for epoch in set(self.epochs(run)) - set(but):
            path = self.checkpoint.folder / _name(run, epoch)
            try:
                path.unlink(missing_ok=True)
            except OSError as exc:
                raise StateError(f"cannot be removed: {exc.strerror}", where=str(path)) from exc

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the checkpoint, whole and durably."""
        path = self.checkpoint.folder / name
        try:
            make_folder(self.checkpoint.folder)
            write_atomically(path, content)
        except OSError as exc:
            raise StateError.unwritable(path, exc) from exc

    def read(self, name: str) -> bytes:
        """Return a file of the checkpoint; UnknownJob when it is not there."""
        path = self.checkpoint.folder / name
        try:
            return path.read_bytes()
        except FileNotFoundError as exc:
            raise UnknownJob(f"nothing is kept under {name}", where=str(path.parent)) from exc
        except OSError as exc:
            raise StateError(f"cannot be read: {exc.strerror}", where=str(path)) from exc


def party_secret(state: Path) -> bytes:
    """Return random bytes that are this party's own, made once; may be seen by it alone.

    They make the first weights of its networks: the same for the same seed of a job, known to nobody else.
    """
    path = state / SECRET_FILE
    try:
        return path.read_bytes() if path.exists() else write_once(path, secrets.token_bytes(_SECRET_BYTES))
    except OSError as exc:
        raise StateError(f"cannot be kept: {exc.strerror}", where=str(path)) from exc


def _name(run: int, epoch: int) -> str:
    return f"run{run}-epoch{epoch}.safetensors"
