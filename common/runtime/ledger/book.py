"""A party's ledger on its disk: every message is written down before it leaves, and when it has come.

    ledger/000001.jsonl …    the entries, each naming the digest of the one before
    ledger/head              the number and the digest of the last one, so that none can be cut off at the end

An entry is with the operating system before its message is sent: kill -9 loses none. Nobody waits for the
disk itself, which would cost more than most messages; entries that go missing when the power fails leave a
gap that `verify` shows.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from common.rpc.content import amount_in
from common.rpc.wiretap import Passage
from common.runtime.ledger.entry import Entry, LedgerError, beginning, declared_in, digest_of, way_of
from common.runtime.state import make_folder

log = logging.getLogger("vfl.ledger")

HEAD = "head"
_HEAD_BYTES = 128
_SEGMENT_BYTES = 64 << 20
_MOST_JOBS = 1024


@dataclass(frozen=True, slots=True)
class Head:
    """Where a ledger ends.

    Attributes:
        segment: Number of the file of the last entry, from 1.
        size: Bytes in that file.
        number: Of the last entry; 0 in an empty ledger.
        digest: Of its line, or the beginning.
    """

    segment: int
    size: int
    number: int
    digest: str

    def content(self) -> bytes:
        """Return the head's file."""
        text = f"{self.segment} {self.size} {self.number} {self.digest}"
        return f"{text:<{_HEAD_BYTES - 1}}\n".encode()

    @classmethod
    def parse(cls, content: bytes) -> Head:
        """Return the head in a file; ValueError if there is none."""
        segment, size, number, digest = content.decode("ascii").split()
        head = cls(int(segment), int(size), int(number), digest)
        if head.content() != content:
            raise ValueError("not written by a ledger")
        return head

    def after(self, line: bytes) -> Head:
        """Return the head after one more line."""
        return Head(self.segment, self.size + len(line), self.number + 1, digest_of(line))


def segment_path(folder: Path, number: int) -> Path:
    """Return the file of a segment."""
    return folder / f"{number:06d}.jsonl"


def segments(folder: Path) -> list[Path]:
    """Return the files of entries, in their order."""
    return sorted(path for path in folder.glob("*.jsonl") if path.stem.isdigit())


class Ledger:
    """Writes entries; several processes of a party may have it open, each uses it from one thread."""

    def __init__(self, state: Path, party: str, segment_bytes: int = _SEGMENT_BYTES) -> None:
        """Create a ledger in a party's state directory; nothing is touched there yet.

        Args:
            state: The party's state directory.
            party: Its name.
            segment_bytes: Where a file of entries ends and the next one begins.
        """
        self._folder = state / "ledger"
        self._party = party
        self._segment_bytes = segment_bytes
        self._moduli: OrderedDict[str, int] = OrderedDict()
        self._lock = self._entries = -1
        self._told = b""
        self._head = Head(1, 0, 0, beginning(party))

    def open(self) -> None:
        """Find the end of the ledger, or begin one; the first message would do it otherwise.

        Raises:
            LedgerError: It cannot be written.
        """
        try:
            make_folder(self._folder)
            self._lock = os.open(self._folder / HEAD, os.O_RDWR | os.O_CREAT, 0o600)
            with self._alone():
                self._recover()
        except OSError as exc:
            raise self._unwritable(exc) from exc

    def record(self, passage: Passage) -> None:
        """Write a message down, unless it stays with this party: its own operator asks and is answered.

        Raises:
            LedgerError: The disk does not take it; then the message must not leave.
        """
        if passage.peer == self._party:
            return
        if self._lock < 0:
            self.open()
        message, job = passage.message, passage.job_id
        amount = amount_in(message, self._moduli.get(job, 0))
        if amount.modulus_bytes:
            self._moduli[job] = amount.modulus_bytes
            if len(self._moduli) > _MOST_JOBS:
                self._moduli.popitem(last=False)
        turn = getattr(message, "turn", None)
        # The same keys in the same order as an Entry's line has, made without one: this is on the way of each
        # message.
        middle = (
            f"{way_of(self._party, passage.direction, passage.peer, job)},"
            f'"round":{getattr(turn, "round", 0)},"attempt":{getattr(turn, "attempt", 0)},'
            f"{declared_in(message.DESCRIPTOR)},"
            f'"rows":{amount.rows},"values":{amount.values},"wire_bytes":{len(passage.wire)},'
            f'"digest":"{digest_of(passage.wire)}"'
        )
        try:
            with self._alone():
                self._catch_up()
                head = self._head
                line = (
                    f'{{"number":{head.number + 1},"time":"{_now()}",{middle},"previous":"{head.digest}"}}\n'
                )
                self._append(line.encode())
        except OSError as exc:
            raise self._unwritable(exc) from exc

    @contextmanager
    def _alone(self) -> Iterator[None]:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _append(self, line: bytes) -> None:
        if self._head.size and self._head.size + len(line) > self._segment_bytes:
            self._open(Head(self._head.segment + 1, 0, self._head.number, self._head.digest))
        written = 0
        try:
            # A disk that fills up takes the first part of a write and says so only to the next one.
            while written < len(line):
                written += os.write(self._entries, line[written:])
        except OSError:
            if written:
                os.ftruncate(self._entries, self._head.size)
            raise
        self._set_head(self._head.after(line))

    def _catch_up(self) -> None:
        """Go on where another process of this party has written."""
        told = os.pread(self._lock, _HEAD_BYTES, 0)
        if told == self._told:
            return
        try:
            self._open(Head.parse(told))
        except ValueError as exc:
            raise LedgerError(
                f"the head of {self._party}'s ledger was changed by something that is no ledger",
                where=str(self._folder / HEAD),
                advice="Copy the folder and run `vfl ledger verify` on it; then start the service again, it "
                "finds the end in the entries. No message leaves until then.",
            ) from exc
        self._told = told

    def _recover(self) -> None:
        """Find the end: where the head says, or beyond it if a process was killed before it told the head."""
        head = self._head_on_disk()
        self._open(head)
        path = segment_path(self._folder, head.segment)
        rest = path.read_bytes()[head.size :] if os.fstat(self._entries).st_size > head.size else b""
        for line in rest.splitlines(keepends=True):
            if not _follows(line, head):
                break
            head = head.after(line)
        size = os.fstat(self._entries).st_size
        if size > head.size:
            # Half a line: its message never left.
            os.ftruncate(self._entries, head.size)
        elif size < head.size:
            log.warning("%s: entries are missing before number %d", path, head.number + 1)
            head = Head(head.segment, size, head.number, head.digest)
        self._set_head(head)

    def _head_on_disk(self) -> Head:
        told = os.pread(self._lock, _HEAD_BYTES, 0)
        try:
            return Head.parse(told)
        except ValueError:
            found = segments(self._folder)
        if not found:
            return Head(1, 0, 0, beginning(self._party))
        log.warning("%s: the head of the ledger is lost", self._folder)
        content = found[-1].read_bytes()
        lines = content.splitlines(keepends=True)
        try:
            number = Entry.parse(lines[-1]).number
        except (IndexError, ValueError) as exc:
            raise LedgerError(
                "the ledger has no head and no last entry",
                where=str(found[-1]),
                advice="move the folder away and keep it; a new ledger begins",
            ) from exc
        return Head(int(found[-1].stem), len(content), number, digest_of(lines[-1]))

    def _open(self, head: Head) -> None:
        """Have the head's segment open."""
        if self._entries < 0 or head.segment != self._head.segment:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            fresh = os.open(segment_path(self._folder, head.segment), flags, 0o600)
            if self._entries >= 0:
                os.close(self._entries)
            self._entries = fresh
        self._head = head

    def _set_head(self, head: Head) -> None:
        self._head, self._told = head, head.content()
        os.pwrite(self._lock, self._told, 0)

    def _unwritable(self, cause: OSError) -> LedgerError:
        return LedgerError(
            f"{self._party} cannot write its ledger: {cause.strerror}",
            where=str(self._folder),
            advice="Make room on that disk, or give the service's user write access: "
            "no message leaves that is not written down.",
        )


def _follows(line: bytes, head: Head) -> bool:
    try:
        entry = Entry.parse(line)
    except ValueError:
        return False
    return line.endswith(b"\n") and (entry.number, entry.previous) == (head.number + 1, head.digest)


def _now() -> str:
    """Return the time in UTC, ISO 8601 with microseconds."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{_second(seconds)}.{nanoseconds // 1000:06d}+00:00"


@lru_cache(1)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
