"""Who applies updates to a block: the event loop's own thread, or k threads that share the block's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Protocol

from common.glm.asynchronous import Update

Apply = Callable[[Update], None]
# Is told of one applied update, or of the error that applying met.
Done = Callable[[Update, Exception | None], None]


class Applier(Protocol):
    """Applies updates; `done` is called in the event loop."""

    @property
    def idle(self) -> bool:
        """Whether no update is being applied or waits for it."""
        ...

    def submit(self, update: Update) -> None:
        """Apply an update, now or soon."""
        ...

    def stop(self) -> None:
        """Apply nothing more."""
        ...


class InlineApplier:
    """One thread, which is the event loop's: nothing is handed over, and nothing is ever under way."""

    idle = True

    def __init__(self, apply: Apply, done: Done) -> None:
        self._apply = apply
        self._done = done

    def submit(self, update: Update) -> None:
        """Apply an update now; whoever sent it hears of an error at once."""
        self._apply(update)
        self._done(update, None)

    def stop(self) -> None:
        """Do nothing: nothing runs."""


class ThreadedApplier:
    """k threads take updates as they come and apply them at the same time, without waiting for each other."""

    def __init__(self, threads: int, apply: Apply, done: Done) -> None:
        self._apply = apply
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Update | None] = SimpleQueue()
        self._results: list[tuple[Update, Exception | None]] = []
        self._results_lock = Lock()
        self._outstanding = 0
        self._threads = [Thread(target=self._work, daemon=True, name=f"vfb2-{at}") for at in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def idle(self) -> bool:
        """Whether no update is being applied or waits for it."""
        return self._outstanding == 0

    def submit(self, update: Update) -> None:
        """Let the next free thread apply an update."""
        self._outstanding += 1
        self._queue.put(update)

    def stop(self) -> None:
        """Let every thread end after what it is doing."""
        for _ in self._threads:
            self._queue.put(None)

    def _work(self) -> None:
        while (update := self._queue.get()) is not None:
            error: Exception | None = None
            try:
                self._apply(update)
            except Exception as exc:  # raised again in the event loop, whatever it is
                error = exc
            with self._results_lock:
                first = not self._results
                self._results.append((update, error))
            if first and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        with self._results_lock:
            results, self._results = self._results, []
        for update, error in results:
            self._outstanding -= 1
            self._done(update, error)


def applier_of(threads: int, apply: Apply, done: Done) -> Applier:
    """Return what applies updates with k threads."""
    return InlineApplier(apply, done) if threads == 1 else ThreadedApplier(threads, apply, done)
