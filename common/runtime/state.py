"""What a party keeps on its own disk: one folder a job, every file complete or absent."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import ColonnadeError, ConfigError, RemoteProtocolError, UnknownJob

# Job ids come from another party and become folder names here, so the alphabet is closed.
JOB_ID_PATTERN = r"[a-z0-9][a-z0-9_-]{0,127}"
_JOB_ID = re.compile(JOB_ID_PATTERN)
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


STATUS_FILE = "status.json"
MODEL_FILE = "model.json"
"""How a job ended, or how far it is; every job that a party took part in leaves one."""


class StateError(ColonnadeError):
    """A party's own state cannot be written or read."""

    @classmethod
    def unwritable(cls, path: Path, cause: OSError) -> StateError:
        """Return the error for a file that the disk does not take."""
        return cls(
            f"a file of the state cannot be written: {cause.strerror}",
            where=str(path),
            advice="Make room on that disk, or give the service's user write access; then run the job again.",
        )


@dataclass(frozen=True, slots=True)
class JobStore:
    """A party's state directory.

    Files are written to a temporary name, flushed to the disk, and renamed, so that after a crash at any
    moment a reader finds the old content or the new, never a part. Folders are 0700 and files 0600.
    """

    root: Path

    def open(self) -> None:
        """Make the directory, and prove that it can be written.

        Raises:
            ConfigError: It cannot.
        """
        try:
            make_folder(self.root / "jobs")
            probe = self.root / f".probe-{secrets.token_hex(4)}"
            probe.touch(mode=0o600)
            probe.unlink()
        except OSError as exc:
            raise ConfigError(
                f"the state directory cannot be written: {exc.strerror}",
                where=str(self.root),
                advice="Give the service's user write access, or name another directory under `state`.",
            ) from exc

    def writable(self) -> bool:
        """Tell whether the directory can be written or, when it is not there yet, made."""
        nearest = next(folder for folder in (self.root, *self.root.parents) if folder.exists())
        return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the directory for this process alone.

        Raises:
            ConfigError: Another service works on it.
        """
        self.open()
        with (self.root / ".lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as exc:
                raise ConfigError(
                    "another service is working on this state directory",
                    where=str(self.root),
                    advice="Stop it first, or name another directory under `state`.",
                ) from exc
            yield

    def job_dir(self, job_id: str) -> Path:
        """Return the folder of a job, making it when it is not there; StateError when that cannot be done."""
        folder = self._folder(job_id)
        try:
            make_folder(folder)
        except OSError as exc:
            raise StateError(f"cannot be made: {exc.strerror}", where=str(folder)) from exc
        return folder

    def checkpoint_dir(self, job_id: str) -> Path:
        """Return where a job keeps what it needs to go on after a loss; nothing is made."""
        return self._folder(job_id) / "checkpoint"

    def write_json(self, job_id: str, name: str, value: Any) -> Path:
        """Write a JSON file of a job atomically and durably."""
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
        return self.write_bytes(job_id, name, f"{text}\n".encode())

    def write_bytes(self, job_id: str, name: str, content: bytes) -> Path:
        """Write a file of a job atomically and durably."""
        target = self.job_dir(job_id) / _checked_name(name)
        try:
            write_atomically(target, content)
        except OSError as exc:
            raise StateError.unwritable(target, exc) from exc
        return target

    def read_json(self, job_id: str, name: str) -> Any:
        """Return the content of a JSON file of a job.

        Raises:
            UnknownJob: There is no such job or no such file.
            StateError: It is damaged.
        """
        try:
            return json.loads(self.read_bytes(job_id, name))
        except ValueError as exc:
            raise StateError("is damaged: not JSON", where=str(self._folder(job_id) / name)) from exc

    def read_bytes(self, job_id: str, name: str) -> bytes:
        """Return the content of a file of a job; UnknownJob when it is not there."""
        source = self._folder(job_id) / _checked_name(name)
        try:
            return source.read_bytes()
        except FileNotFoundError as exc:
            raise UnknownJob(f"job {job_id} has no {name} here", where=str(self.root)) from exc
        except OSError as exc:
            raise StateError(f"cannot be read: {exc.strerror}", where=str(source)) from exc

    def has(self, job_id: str, name: str) -> bool:
        """Tell whether a file of a job is there."""
        return (self._folder(job_id) / _checked_name(name)).is_file()

    def list_jobs(self) -> tuple[str, ...]:
        """Return the ids of all jobs that left something here, the oldest folder first."""
        jobs = self.root / "jobs"
        if not jobs.is_dir():
            return ()
        folders = [entry for entry in jobs.iterdir() if entry.is_dir() and _JOB_ID.fullmatch(entry.name)]
        return tuple(
            entry.name for entry in sorted(folders, key=lambda entry: (entry.stat().st_ctime_ns, entry.name))
        )

    def _folder(self, job_id: str) -> Path:
        return self.root / "jobs" / checked_job_id(job_id)


def checked_job_id(job_id: str) -> str:
    """Return a job id that another party sent, if it can name a folder here.

    Raises:
        RemoteProtocolError: It holds other characters, or too many.
    """
    if not _JOB_ID.fullmatch(job_id):
        raise RemoteProtocolError("a job id holds characters that no job id has")
    return job_id


def write_atomically(target: Path, content: bytes) -> None:
    """Replace a file's content so that a crash leaves the old or the new one, and the new one lasts."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush_folder(target.parent)


def write_once(target: Path, content: bytes) -> bytes:
    """Keep a file's first content, durably; return it, which is another's where somebody was faster."""
    candidate = target.with_name(f"{target.name}.{secrets.token_hex(6)}")
    write_atomically(candidate, content)
    try:
        with suppress(FileExistsError):
            target.hardlink_to(candidate)
    finally:
        candidate.unlink()
    flush_folder(target.parent)
    return target.read_bytes()


def flush_folder(path: Path) -> None:
    """Wait until the names in a folder have reached the disk: a rename is not durable before."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _checked_name(name: str) -> str:
    if not _FILE_NAME.fullmatch(name):
        raise StateError("a file of a job has a plain name")
    return name


def make_folder(folder: Path) -> None:
    """Make a folder that only this party's user may read, and whatever is missing above it alike."""
    # With `parents=True` Path.mkdir would give the folders above the usual mode.
    if not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
