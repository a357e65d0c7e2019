"""Noise prepared while a party waits for others: bounded, and every power leaves it once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class NoiseStock:
    """Powers h_s^r made in advance, and the turn-taking between those who fill it and those who work.

    Two ciphertexts under the same noise differ by a power of 1 + N, which shows the difference of their
    plaintexts to anybody. So a power is removed in the same breath in which it is handed out, it is never
    put back, and nothing of the stock is ever written or copied.
    """

    def __init__(self) -> None:
        self._powers: deque[bytes] = deque()
        self._change = threading.Condition()
        self._working = 0
        self._finished = False

    def __len__(self) -> int:
        return len(self._powers)

    def __repr__(self) -> str:
        return f"NoiseStock({len(self)} powers)"

    def take(self, count: int) -> list[bytes]:
        """Remove and return up to `count` powers, big-endian and as wide as a ciphertext."""
        with self._change:
            taken = [self._powers.popleft() for _ in range(min(count, len(self._powers)))]
            self._change.notify_all()
        return taken

    def put(self, powers: list[bytes]) -> None:
        """Add fresh powers."""
        with self._change:
            self._powers.extend(powers)
            self._change.notify_all()

    @contextmanager
    def work(self) -> Iterator[None]:
        """Keep those who fill the stock waiting meanwhile: what a round waits for comes first."""
        with self._change:
            self._working += 1
        try:
            yield
        finally:
            with self._change:
                self._working -= 1
                self._change.notify_all()

    def wait_for_room(self, limit: int) -> int:
        """Wait until nothing else is to be done and the stock is below its limit; return by how much.

        Returns:
            0 once the stock is finished.
        """
        with self._change:
            self._change.wait_for(lambda: self._finished or (not self._working and len(self._powers) < limit))
            return 0 if self._finished else limit - len(self._powers)

    def finish(self) -> None:
        """Send home those who fill the stock; what is there may still be used."""
        with self._change:
            self._finished = True
            self._change.notify_all()
