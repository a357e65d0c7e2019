"""What a party keeps of a job that has not ended, so that the job survives the loss of its process.

Everything lies in the job's folder under `checkpoint/`, is written before anything computed from it is sent,
and goes when the job ends. It is as secret as the party's model: weights, and shares of cross products.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.runtime.state import JobStore, StateError, make_folder, write_atomically

log = logging.getLogger("vfl.runtime")

MAX_ATTEMPTS = 100
"""How often a job is opened again at most. Every attempt may have one round decrypted once more and one
set-up masked once more, so this bounds what repeating could ever show (docs/decisions/0015-resume.md)."""

CLOSING = "closing"
"""At the active party: what it needs for its report, once everybody has trained and only closing is left."""

TRAINED = "trained"
"""At a passive party: the model as it will be kept if the job finishes. Closing needs nothing else then."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One job's unfinished state at one party. Any read of something that is absent or torn gives None."""

    folder: Path

    @classmethod
    def of(cls, store: JobStore, job_id: str) -> Checkpoint:
        """Return where a job's unfinished state lies, or will lie."""
        return cls(store.checkpoint_dir(job_id))

    def keep(self, name: str, value: Any) -> None:
        """Write a value as JSON, whole and durably; floats come back bit by bit.

        Raises:
            StateError: The disk does not take it.
        """
        content = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        try:
            make_folder(self.folder)
            write_atomically(self._path(name), content)
        except OSError as exc:
            raise StateError.unwritable(self._path(name), exc) from exc

    def has(self, name: str) -> bool:
        """Tell whether a value is kept."""
        return self._path(name).is_file()

    def kept(self, name: str) -> Any | None:
        """Return a value that was kept, None without one.

        Raises:
            StateError: It is there, and damaged; going on without it could end with other weights.
        """
        path = self._path(name)
        try:
            return json.loads(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            raise StateError(f"cannot be read: {exc.strerror}", where=str(path)) from exc
        except ValueError as exc:
            raise StateError("is damaged: not JSON", where=str(path)) from exc

    def keep_round(self, number: int, value: Any) -> None:
        """Keep what a party knows after a round, besides that of the round before; durable when it returns.

        Two files are overwritten in turns, with one flush a round. Replacing a file by renaming needs two,
        which would be a quarter of a short round.

        Raises:
            StateError: The disk does not take it.
        """
        content = json.dumps({"round": number, "state": value}, allow_nan=False).encode()
        path = self._round_path(number)
        try:
            is_new = not path.exists()
            if is_new:
                make_folder(self.folder)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "wb") as handle:
                handle.write(hashlib.sha256(content).digest() + content)
                handle.truncate()
                handle.flush()
                os.fdatasync(handle.fileno())
            if is_new:
                _sync_folder(self.folder)
        except OSError as exc:
            raise StateError.unwritable(path, exc) from exc

    def rounds(self) -> dict[int, Any]:
        """Return what is kept of the last rounds, by round; a file that was being written counts as none."""
        found: dict[int, Any] = {}
        for path in (self._round_path(0), self._round_path(1)):
            try:
                content = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as exc:
                raise StateError(f"cannot be read: {exc.strerror}", where=str(path)) from exc
            digest, text = content[:32], content[32:]
            if hashlib.sha256(text).digest() != digest:
                log.info("%s was being written when the process ended; the round before it counts", path)
                continue
            kept = json.loads(text)
            found[int(kept["round"])] = kept["state"]
        return dict(sorted(found.items()))

    def discard(self) -> None:
        """Remove everything: the job has ended."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _round_path(self, number: int) -> Path:
        return self.folder / f"round-{number % 2}"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
