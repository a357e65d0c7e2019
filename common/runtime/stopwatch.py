"""How long a party computes in one job; waiting for others does not count."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Stopwatch:
    """Seconds of computing, by what was computed."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def counted(self, what: str) -> Iterator[None]:
        """Count the seconds of a block."""
        start_s = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] += time.monotonic() - start_s

    async def thread(self, what: str, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Do the work in a thread, so that other jobs go on meanwhile, and count its seconds."""
        with self.counted(what):
            return await asyncio.to_thread(work, *args, **kwargs)
