"""How long a party computes in one job; waiting for others does not count."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Stopwatch:
    """Seconds of computing, by what was computed."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    async def thread(self, what: str, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Do the work in a thread, so that other jobs go on meanwhile, and count its seconds."""
        start_s = time.monotonic()
        try:
            return await asyncio.to_thread(work, *args, **kwargs)
        finally:
            self.seconds[what] += time.monotonic() - start_s
