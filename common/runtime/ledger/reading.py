"""Reads ledgers, and finds what was changed in one since it was written."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common.runtime.ledger.book import HEAD, Head, segments
from common.runtime.ledger.entry import Entry, LedgerError, beginning, digest_of

_MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `verify` found.

    Attributes:
        entries: How many lines are entries.
        first: Time of the first one, empty without one; `last` of the last one.
        problems: Sentences with file and line; empty for a ledger that nobody has changed.
    """

    entries: int
    first: str
    last: str
    problems: tuple[str, ...]


def ledger_folder(path: Path) -> Path:
    """Return the ledger in a state directory, or the path itself if that is one.

    Raises:
        LedgerError: There is none.
    """
    for folder in (path / "ledger", path):
        if folder.is_dir() and segments(folder):
            return folder
    raise LedgerError(
        "there is no ledger here",
        where=str(path),
        advice="name a party's state directory; its ledger begins with its first message",
    )


def entries_in(path: Path) -> Iterator[Entry]:
    """Yield the entries of a ledger: a state directory, the ledger in it, or a file of its lines.

    Raises:
        LedgerError: There is none, or a line is no entry.
    """
    files = [path] if path.is_file() else segments(ledger_folder(path))
    for file in files:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield Entry.parse(line)
                except ValueError as exc:
                    raise LedgerError(
                        "a line is no entry of a ledger",
                        where=f"{file}, line {number}",
                        advice="`vfl ledger verify` says what else was changed",
                    ) from exc


def verify(state: Path) -> Verdict:
    """Follow the chain of a ledger from its first line to its head; its party may go on writing meanwhile.

    Raises:
        LedgerError: There is no ledger.
    """
    folder = ledger_folder(state)
    files, sizes, told = _snapshot(folder)
    chain = _Chain()
    for file, size_bytes in zip(files, sizes, strict=True):
        for number, line in enumerate(_lines(file, size_bytes), start=1):
            chain.add(line, f"{file.name}, line {number}")
    if told is None:
        chain.problems.append(f"{HEAD}: missing, or not written by a ledger")
    else:
        chain.end(told, int(files[-1].stem), sizes[-1])
    return Verdict(chain.entries, chain.first, chain.last, tuple(chain.problems[:_MOST_PROBLEMS]))


def _snapshot(folder: Path) -> tuple[list[Path], list[int], Head | None]:
    """Return the files with their sizes, and the head, as they are between two entries."""
    try:
        with (folder / HEAD).open("rb") as head:
            fcntl.flock(head, fcntl.LOCK_SH)
            files = segments(folder)
            return files, [file.stat().st_size for file in files], Head.parse(head.read())
    except (OSError, ValueError):
        files = segments(folder)
        return files, [file.stat().st_size for file in files], None


def _lines(file: Path, size_bytes: int) -> Iterator[bytes]:
    with file.open("rb") as content:
        while content.tell() < size_bytes:
            yield content.readline()


class _Chain:
    def __init__(self) -> None:
        self.entries = 0
        self.first = self.last = ""
        self.problems: list[str] = []
        self._number = 0
        self._digest: str | None = None

    def add(self, line: bytes, place: str) -> None:
        """Hold the next line against the one before it."""
        try:
            entry = Entry.parse(line)
        except ValueError:
            self.problems.append(f"{place}: no entry of a ledger")
            self._digest = digest_of(line)
            return
        self._compare(entry, place)
        self.entries += 1
        self.first, self.last = self.first or entry.time, entry.time
        self._number, self._digest = entry.number, digest_of(line)

    def end(self, told: Head, segment: int, size_bytes: int) -> None:
        """Hold the last line, in this segment of this size, against the head."""
        if told.number > self._number:
            self.problems.append(f"{HEAD}: {_missing(self._number + 1, told.number)} at the end")
        elif self._digest is not None and told != Head(segment, size_bytes, self._number, self._digest):
            self.problems.append(
                f"{HEAD}: it or the last entry was changed, or an entry was added at the end"
            )

    def _compare(self, entry: Entry, place: str) -> None:
        expected = self._number + 1
        if entry.number > expected:
            self.problems.append(f"{place}: {_missing(expected, entry.number - 1)}")
        elif entry.number < expected:
            self.problems.append(f"{place}: entry {entry.number} again, or out of its order")
        elif entry.previous != (beginning(entry.party) if self._digest is None else self._digest):
            before = f"entry {entry.number - 1}" if self._number else "the beginning"
            self.problems.append(f"{place}: {before} or this line was changed")


def _missing(first: int, last: int) -> str:
    return f"entry {first} is missing" if first == last else f"entries {first} to {last} are missing"
