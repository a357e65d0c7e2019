"""Spreading one computation over an executor without holding all of it in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# For executors that do not say how many workers they have: most machines have more cores, none has fewer.
_WORKERS_UNKNOWN = 2

# Enough to keep some dozens of workers busy, few enough that memory does not grow with the input.
_IN_FLIGHT = 32


def worker_count(executor: Executor) -> int:
    """Return how many tasks the executor works on at the same time, by its own attribute `workers`."""
    workers: int = getattr(executor, "workers", _WORKERS_UNKNOWN)
    return max(1, workers)


def in_order(
    executor: Executor, function: Callable[[Task], Result], tasks: Iterable[Task]
) -> Iterator[Result]:
    """Yield function(task) for every task, in their order; tasks are drawn as results are taken."""
    pending: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            pending.append(executor.submit(function, task))
            if len(pending) >= _IN_FLIGHT:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
