"""How things look: sizes, times, and the two ways to show progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.text import Text

from common.rpc.pb.active_party_pb2 import JobEvent

# A pipe or a log file has no width; this one keeps every line of ours whole.
PLAIN_WIDTH = 140

# A log of a job of hours should stay readable.
LINE_EVERY_S = 3.0


def say(console: Console, text: str) -> None:
    """Print a text as it is: nothing in it is markup, and a path is never broken in two."""
    console.print(text, markup=False, soft_wrap=True)


class PlainTable:
    """Columns without lines: the first flush left, the rest flush right when they are numbers.

    rich's own table would cut cells on a narrow terminal; a file name or a number that is cut is of no use.
    """

    def __init__(self, *headings: str, kind: Literal["numbers", "text"] = "numbers") -> None:
        """Create a table with its headings."""
        self._rows: list[tuple[str, ...]] = [headings]
        self._aligned = str.rjust if kind == "numbers" else str.ljust

    def add_row(self, *cells: str) -> None:
        """Add a row of as many cells as there are headings."""
        self._rows.append(cells)

    def print(self, console: Console) -> None:
        """Print the table, the headings in bold."""
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        for index, row in enumerate(self._rows):
            rest = [self._aligned(cell, width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            cells = [row[0].ljust(widths[0]), *rest]
            console.print(Text("   ".join(cells).rstrip(), style="" if index else "bold"), soft_wrap=True)


class ProgressView(Protocol):
    """Shows a job while it runs."""

    def show(self, event: JobEvent) -> None:
        """Take notice of an event."""
        ...

    def tell(self, text: str) -> None:
        """Say something about the watching itself, on a line of its own."""
        ...


def open_console() -> Console:
    """Return the console for results: as wide as the terminal, or wide enough for whole lines."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    return Console(width=width, highlight=False, emoji=False)


@contextmanager
def progress_view(console: Console) -> Iterator[ProgressView]:
    """Show progress while the block runs: a bar on a terminal, else lines."""
    if not console.is_terminal:
        yield ProgressLines(console)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<11}"),
        BarColumn(bar_width=10),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield ProgressBar(bar)


class ProgressBar:
    """One bar that moves on with the rounds."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task: TaskID = bar.add_task("queued", total=None, text="")

    def show(self, event: JobEvent) -> None:
        """Move the bar to the event's round; a notice stays above it."""
        if event.notice:
            self._bar.console.print(f"note: {event.notice}", markup=False, soft_wrap=True)
            return
        self._bar.update(
            self._task,
            description=event.phase,
            total=event.max_rounds or None,
            completed=event.round,
            # 80 columns hold the numbers or a message, not both.
            text=event.message or progress_text(event),
        )

    def tell(self, text: str) -> None:
        """Print a line above the bar."""
        say(self._bar.console, text)


class ProgressLines:
    """A line for each phase, and within a phase one every few seconds of the job's own time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase = self._message = ""
        self._round = 0
        self._next_s = 0.0
        self._held: JobEvent | None = None

    def show(self, event: JobEvent) -> None:
        """Print the event, or keep it back until its turn comes."""
        if event.notice:
            self._console.print(
                f"{event.elapsed_s:7.1f} s  note: {event.notice}", markup=False, soft_wrap=True
            )
            return
        if event.phase != self._phase:
            if self._held is not None:
                self._print(self._held)
            self._phase = event.phase
            self._print(event)
        elif event.round > self._round and event.elapsed_s < self._next_s:
            self._held = event
        elif event.round > self._round or event.message not in ("", self._message):
            self._print(event)

    def tell(self, text: str) -> None:
        """Print a line between the others."""
        say(self._console, text)

    def _print(self, event: JobEvent) -> None:
        self._held, self._message = None, event.message
        self._round = max(self._round, event.round)
        self._next_s = event.elapsed_s + LINE_EVERY_S
        line = f"{event.elapsed_s:7.1f} s  {event.phase:<11} {progress_text(event)}{_told(event)}"
        self._console.print(line.rstrip(), markup=False, soft_wrap=True)


def progress_text(event: JobEvent) -> str:
    """Return round, loss, time left, bytes sent and received, as far as the event has them."""
    parts = []
    if event.round:
        parts.append(f"{event.unit or 'round'} {event.round}/{event.max_rounds}")
    if event.HasField("loss"):
        parts.append(f"loss {event.loss:.6g}")
    if event.HasField("eta_s"):
        parts.append(f"eta {duration(event.eta_s)}")
    if event.sent_bytes or event.received_bytes:
        parts.append(f"↑ {size(event.sent_bytes)} ↓ {size(event.received_bytes)}")
    return "  ".join(parts)


def size(count: float) -> str:
    """Return a number of bytes for people: powers of ten, three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def duration(seconds: float) -> str:
    """Return a time span for people."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _told(event: JobEvent) -> str:
    return f"  {event.message}" if event.message else ""
