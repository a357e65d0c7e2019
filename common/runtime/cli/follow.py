"""Follows a job of the active party's service until it ends or the user has seen enough."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from rich.console import Console

from common.errors import PeerUnreachable
from common.rpc.pb.active_party_pb2 import JobRecord
from common.runtime.cli.console import ProgressView, progress_view, say
from common.runtime.cli.operator import Operator

T = TypeVar("T")

# What Ctrl-C does to a job that is being watched.
OnInterrupt: TypeAlias = Literal["detach", "cancel"]

# Between two attempts to find the service again; short, because a restart takes seconds.
_REDIAL_S = 1.0


class Detached(Exception):
    """The user stopped watching a job that goes on; not an error."""


async def follow(operator: Operator, job_id: str, view: ProgressView) -> JobRecord:
    """Show a job's events until it has ended; return its last record.

    A connection that is lost is looked for again for `deadlines.peer_s` seconds.

    Raises:
        PeerUnreachable: The service is gone.
    """
    party, patience_s = operator.config.party, operator.config.deadlines.peer_s
    lost_at: float | None = None
    while True:
        try:
            async for event in operator.watch(job_id):
                if lost_at is not None:
                    view.tell(f"{party} is back")
                lost_at = None
                view.show(event)
                if event.HasField("record"):
                    return event.record
            return await operator.show(job_id)
        except PeerUnreachable:
            now = time.monotonic()
            if lost_at is None:
                lost_at = now
                view.tell(f"the connection to {party} is lost; it has {patience_s:g} s to come back")
            if now - lost_at > patience_s:
                raise
            await asyncio.sleep(_REDIAL_S)


async def fetch(operator: Operator, job_id: str, folder: Path) -> tuple[Path, ...]:
    """Write a job's artifacts into a folder, also when the service is started again meanwhile.

    Raises:
        PeerUnreachable: The service is gone.
    """
    until = time.monotonic() + operator.config.deadlines.peer_s
    while True:
        try:
            return await operator.fetch(job_id, folder)
        except PeerUnreachable:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(_REDIAL_S)


async def follow_on_console(
    operator: Operator, job_id: str, console: Console, on_interrupt: OnInterrupt
) -> JobRecord:
    """Follow a job on the console; Ctrl-C detaches from it or cancels it, a second one always detaches.

    Raises:
        Detached: The user pressed Ctrl-C.
    """
    with progress_view(console) as view, interrupts() as pressed:
        following = asyncio.ensure_future(follow(operator, job_id, view))
        try:
            record = await first_of(following, pressed)
            if record is None and on_interrupt == "cancel":
                pressed.clear()
                say(console, f"cancelling {job_id} …")
                await operator.cancel(job_id)
                record = await first_of(following, pressed)
        finally:
            following.cancel()
    if record is None:
        raise Detached(job_id)
    return record


@contextmanager
def interrupts() -> Iterator[asyncio.Event]:
    """Turn Ctrl-C, SIGTERM and the end of the terminal into an event while the block runs."""
    pressed = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, pressed.set)
    try:
        yield pressed
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def first_of(task: asyncio.Future[T], pressed: asyncio.Event) -> T | None:
    """Return a task's result, or None when the event came first."""
    waiting = asyncio.ensure_future(pressed.wait())
    either: set[asyncio.Future[Any]] = {task, waiting}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return task.result() if task.done() else None
