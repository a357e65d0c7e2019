"""Spreading one computation over an executor without holding all of it in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# Enough to keep some dozens of workers busy, few enough that memory does not grow with the input.
_IN_FLIGHT = 32


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
