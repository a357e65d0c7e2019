"""One party that is slower than the others: it is stopped for a part of every moment, and told nothing.

The service runs unchanged. Every 10 ms its processes get SIGSTOP and a little later SIGCONT, so that a party
that is 40 % slower has the processor for 1/1.4 of the time, as on a machine that others use, too.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PERIOD_S = 0.010


@contextmanager
def slowed(group: int, slower_by: float) -> Iterator[None]:
    """Slow a process group down while the block runs.

    Args:
        group: Of a party's service and its workers.
        slower_by: 0.4 makes it take 1.4 times as long for everything; 0 leaves it alone.
    """
    if not slower_by:
        yield
        return
    done = threading.Event()
    stopped_s = _PERIOD_S * (1.0 - 1.0 / (1.0 + slower_by))
    thread = threading.Thread(target=_duty_cycle, args=(group, stopped_s, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _duty_cycle(group: int, stopped_s: float, done: threading.Event) -> None:
    with suppress(ProcessLookupError):
        try:
            while not done.is_set():
                os.killpg(group, signal.SIGSTOP)
                time.sleep(stopped_s)
                os.killpg(group, signal.SIGCONT)
                time.sleep(_PERIOD_S - stopped_s)
        finally:
            os.killpg(group, signal.SIGCONT)
