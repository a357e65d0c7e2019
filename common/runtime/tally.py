"""How far long work has come, counted across threads, and a way to stop it."""

from __future__ import annotations

import threading
from collections import defaultdict

from common.errors import JobCancelled


class Tally:
    """Counts what is done, by part of the work; once stopped, whoever counts on gets an error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: defaultdict[str, int] = defaultdict(int)
        self._stopped = False

    @property
    def done(self) -> int:
        """How much is done in all parts together."""
        with self._lock:
            return sum(self._done.values())

    def add(self, part: str, count: int) -> None:
        """Count more of a part of the work, at the pace of the one who does it.

        Raises:
            JobCancelled: Nobody waits for the work any more.
        """
        with self._lock:
            self._done[part] += count
            stopped = self._stopped
        if stopped:
            raise JobCancelled("the work is no longer waited for")

    def reach(self, part: str, done: int) -> None:
        """Note how far a part is that somebody else works on."""
        with self._lock:
            self._done[part] = max(self._done[part], done)

    def stop(self) -> None:
        """Let whoever counts next end its work."""
        with self._lock:
            self._stopped = True
