"""Where the arithmetic runs: a pool of processes, or this process itself."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import wait
from typing import Literal, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


# What lets a process of glibc 2.35 and later, and Python in it, ask the kernel for pages of 2 MB. Tables of
# noise are read at random: in pages of 4 KB a look-up waits for an address first, 3 to 10 % of a power.
_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONMALLOC": "malloc"}


class InProcessExecutor(Executor):
    """Computes at once, in the caller's thread: for tests and for machines with one core."""

    workers = 1

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return a future that is done already."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as exc:
            future.set_exception(exc)
        return future


class WorkerPool(ProcessPoolExecutor):
    """Processes that come from a fork server, ignore Ctrl-C, and end with their parent."""

    def __init__(self, workers: int) -> None:
        with _environment(_HUGE_PAGES):
            forkserver.ensure_running()
        super().__init__(
            workers, mp_context=multiprocessing.get_context("forkserver"), initializer=_live_with_the_parent
        )
        self.workers = workers


def open_executor(workers: Literal["auto"] | int) -> Executor:
    """Return the executor for a party's arithmetic; 0 workers mean this process itself.

    Workers come from a fork server that never had a thread or a gRPC channel, because a process forked from
    one that has may hang. They ignore Ctrl-C, which their parent handles, and end when their parent dies.
    """
    count = available_cores() if workers == "auto" else workers
    if count == 0:
        return InProcessExecutor()
    executor = WorkerPool(count)
    # All workers start now, so that the first job does not wait for them; only the first one is waited for.
    started = [executor.submit(os.getpid) for _ in range(count)]
    started[0].result()
    return executor


@contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a process that is started meanwhile, where whoever started us has not."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ |= added
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def available_cores() -> int:
    """Return how many cores this process may use, which in a container is fewer than the machine has."""
    return max(1, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _live_with_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, name="parent-watch", daemon=True).start()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        # A worker of a killed service would wait for work for ever: its siblings hold the queue open.
        os._exit(1)
