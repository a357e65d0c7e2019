"""What a party writes down in training: a checkpoint now and then, and every update in between.

    checkpoint.K     the state after segment K − 1; written whole, or absent
    segment.K        records from then on, appended: length, CRC-32, content

Records that come while others are being written are written together afterwards. A record is *written* when
the operating system has it: it survives a process that is killed. It is *durable* when the disk has been
flushed, which takes 3 ms: it survives a power cut as well. A pace says how soon either is done (ADR 0020).
"""

from __future__ import annotations

import asyncio
import os
import re
import zlib
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from common.runtime.state import StateError, write_atomically


@dataclass(frozen=True, slots=True)
class Pace:
    """How soon records reach the disk.

    Attributes:
        flush_after_s: How long they wait for others before they are flushed together.
        safe_when: What a record must survive before others may know of it.
    """

    flush_after_s: float
    safe_when: Literal["written", "flushed"]


COLLABORATING = Pace(0.05, "flushed")
"""Nobody waits for a collaborator's records: what it loses it is sent again."""

FLUSHED, WRITTEN = Pace(0.0, "flushed"), Pace(0.1, "written")
"""A dominator's, whose updates are sent when they are flushed, or already when they are written."""

_HEAD_BYTES = 8
_CHECKPOINT = re.compile(r"checkpoint\.(\d{1,9})")
_SEGMENT = re.compile(r"segment\.(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Recovered:
    """What an earlier process left.

    Attributes:
        checkpoint: The newest one, None before the first.
        records: Everything that was written down after it, in order.
    """

    checkpoint: bytes | None = field(repr=False)
    records: list[bytes] = field(repr=False)


class _Segment:
    """A file of records, made by the first one; one thread at a time appends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def append(self, records: list[bytes]) -> None:
        if not records:
            return
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # A disk that fills up takes the first part of a write and says so only to the next one.
        left = memoryview(b"".join(records))
        while left:
            left = left[os.write(self._descriptor, left) :]

    def flush(self) -> None:
        if self._descriptor is not None:
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Journal:
    """One job's journal at one party; used from the event loop, flushed by a thread of its own."""

    def __init__(self, folder: Path, pace: Pace = FLUSHED) -> None:
        """Open the journal in a job's folder that is there."""
        self._folder = folder
        self._on_durable: Callable[[], None] = lambda: None
        self._pace = pace
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="vfb2-journal")
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._flushing: asyncio.Task[None] | None = None
        self._checkpoints: set[asyncio.Task[None]] = set()
        self._number = 0
        self._segment = _Segment(self._path("segment", 0))
        self.appended = 0
        self.written = 0
        self.durable = 0
        self.failed: StateError | None = None

    @property
    def safe(self) -> int:
        """The last record that others may know of."""
        return self.written if self._pace.safe_when == "written" else self.durable

    def recover(self) -> Recovered:
        """Return what is there; a last record that was not written to its end is dropped."""
        checkpoints = self._numbered(_CHECKPOINT)
        newest = max(checkpoints, default=0)
        segments = sorted(number for number in self._numbered(_SEGMENT) if number >= newest)
        records = [record for number in segments for record in _records(self._path("segment", number))]
        self._begin_segment(max([newest, *segments], default=0) + 1)
        content = self._path("checkpoint", newest).read_bytes() if checkpoints else None
        return Recovered(content, records)

    def listen(self, on_durable: Callable[[], None]) -> None:
        """Have a function called after every step on the disk, also after one that failed."""
        self._on_durable = on_durable

    def barrier(self, then: Callable[[], None]) -> None:
        """Call a function when everything so far is on the disk."""
        self._track(self._flushing_all(then))

    async def flushed(self) -> None:
        """Wait until everything so far is on the disk."""
        while under_way := [*self._checkpoints, *filter(None, (self._flushing,))]:
            # Not gathered: whoever waits here may be cancelled, and must not take the writing along.
            await asyncio.wait(under_way)

    def append(self, record: bytes) -> int:
        """Write a record down; return its number, which `written` and `durable` will reach."""
        head = len(record).to_bytes(4, "little") + zlib.crc32(record).to_bytes(4, "little")
        self._waiting.append(head + record)
        self.appended += 1
        if self._flushing is None:
            self._flushing = self._loop.create_task(self._flush())
        return self.appended

    def write(self) -> None:
        """Let the operating system have the records so far, now, where others may know of them then.

        That is a few microseconds in the event loop; to hand them to a thread and to hear of it again takes
        longer than all else that an update needs here. What the thread was given before comes first, though.
        """
        # Nobody may hear of an update before the checkpoint it follows is there: restarts begin with one.
        behind = bool(self._checkpoints) or self.written < self.appended - len(self._waiting)
        if self._pace.safe_when == "flushed" or behind or not self._waiting or self.failed is not None:
            return
        try:
            self._segment.append(self._taken())
        except OSError as exc:
            self._fail(exc)
        else:
            self.written = self.appended

    def checkpoint(self, content: Callable[[], bytes], then: Callable[[], None]) -> None:
        """Keep a state instead of all records so far.

        Args:
            content: Makes the bytes, in the writing thread.
            then: Called in the event loop when they are on the disk.
        """
        self.write()
        records, upto, last = self._taken(), self.appended, self._segment
        number = self._number + 1
        self._begin_segment(number)

        def write() -> None:
            last.append(records)
            last.flush()  # or a power cut could leave a gap before the next
            last.close()
            write_atomically(self._path("checkpoint", number), content())
            self._forget(number)

        self._track(self._do(write, partial(self._reached, upto), then))

    def _track(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._checkpoints.add(task)
        task.add_done_callback(self._checkpoints.discard)

    async def close(self) -> None:
        """Flush what waits, and let go of the file."""
        await self.flushed()
        await self._loop.run_in_executor(self._writer, self._segment.close)
        self._writer.shutdown(wait=False)

    async def _flush(self) -> None:
        try:
            while (self._waiting or self.durable < self.written) and self.failed is None:
                if self._pace.flush_after_s:
                    await asyncio.sleep(self._pace.flush_after_s)
                await self._flushing_all()
        finally:
            self._flushing = None

    def _flushing_all(self, *then: Callable[[], None]) -> Coroutine[None, None, None]:
        self.write()
        records, upto, segment = self._taken(), self.appended, self._segment

        def write() -> None:
            segment.append(records)
            segment.flush()

        return self._do(write, partial(self._reached, upto), *then)

    def _taken(self) -> list[bytes]:
        records, self._waiting = self._waiting, []
        return records

    def _reached(self, number: int) -> None:
        self.written, self.durable = max(self.written, number), max(self.durable, number)

    def _do(self, work: Callable[[], None], *then: Callable[[], None]) -> Coroutine[None, None, None]:
        """Give work to the writing thread, now: the order of calls is the order on the disk."""
        return self._done(self._loop.run_in_executor(self._writer, work), *then)

    async def _done(self, work: asyncio.Future[None], *then: Callable[[], None]) -> None:
        try:
            await work
        except OSError as exc:
            self._fail(exc)
            return
        if self.failed is None:  # or what follows a lost record would be called durable
            for step in then:
                step()
        self._on_durable()

    def _fail(self, cause: OSError) -> None:
        self.failed = StateError.unwritable(self._folder, cause)
        self._on_durable()

    def _begin_segment(self, number: int) -> None:
        self._number, self._segment = number, _Segment(self._path("segment", number))

    def _forget(self, before: int) -> None:
        for kind, pattern in (("checkpoint", _CHECKPOINT), ("segment", _SEGMENT)):
            for number in self._numbered(pattern):
                if number < before:
                    self._path(kind, number).unlink(missing_ok=True)

    def _numbered(self, pattern: re.Pattern[str]) -> list[int]:
        found = (pattern.fullmatch(entry.name) for entry in self._folder.iterdir())
        return [int(match.group(1)) for match in found if match is not None]

    def _path(self, kind: str, number: int) -> Path:
        return self._folder / f"{kind}.{number}"


def _records(path: Path) -> list[bytes]:
    content, found, at = path.read_bytes(), [], 0
    while at + _HEAD_BYTES <= len(content):
        length = int.from_bytes(content[at : at + 4], "little")
        record = content[at + _HEAD_BYTES : at + _HEAD_BYTES + length]
        if len(record) < length or zlib.crc32(record).to_bytes(4, "little") != content[at + 4 : at + 8]:
            break
        found.append(record)
        at += _HEAD_BYTES + length
    return found
