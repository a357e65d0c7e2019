"""Processor seconds of a process and its threads, and the processor they run on (Linux)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def pinned(pid: int, place: int) -> Iterator[None]:
    """Let a process run on one processor, the first, the second, … that it may use, while the block runs."""
    usual = os.sched_getaffinity(pid)
    _let_run(pid, {sorted(usual)[place % len(usual)]})
    try:
        yield
    finally:
        _let_run(pid, usual)


def _let_run(pid: int, processors: Collection[int]) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread.name), processors)


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Of one process."""

    pid: int

    def seconds(self) -> float:
        """Return user and system time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS  # utime and stime, proc(5)
