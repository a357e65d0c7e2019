"""Experiments 2 and 3: how much faster an epoch gets with more parties, and with more dominators.

More parties share the columns: each has fewer of them to multiply. On a machine with fewer cores than parties
a clock cannot show that. So the processor seconds of the busiest party stand beside it, and a second run in
which a proxy hands a party its messages as much later as it has columns: an emulation, of companies that each
have a machine of their own and rows that are dear to multiply. More dominators have more updates under way:
that shows on a clock wherever links, not processors, are what one waits for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.vfb2 import pictures, results
from benchmarks.vfb2.data import Pooled
from benchmarks.vfb2.federation import Federation, Layout, Run, federation
from benchmarks.vfb2.processor import ProcessorTime

L2 = 1e-4


_WARM_EPOCHS = 1


async def parties(
    pooled: Pooled, counts: Sequence[int], column_s: float, train: dict[str, Any]
) -> list[dict[str, Any]]:
    """Run one job for each number of parties q as they are, and one with columns that take their time."""
    rows = []
    for count in counts:
        plain = await _measured(pooled, Layout(count, 1), train)
        slow = await _measured(pooled, Layout(count, 1, column_s=column_s), train)
        delayed = slow["seconds_an_epoch"]
        rows.append({"parties": count, **plain, "delayed_s_an_epoch": delayed, "column_ms": column_s * 1e3})
    for row in rows:
        row["delayed_speed_up"] = rows[0]["delayed_s_an_epoch"] / row["delayed_s_an_epoch"]
    title = f"{pooled.name}, {len(pooled.labels):,} × {pooled.features.shape[1]}, m = 1"
    _finish("parties", rows, "parties", f"{title}, batch {train['batch_size']}")
    return rows


async def dominators(
    pooled: Pooled, counts: Sequence[int], layout: Layout, train: dict[str, Any]
) -> list[dict[str, Any]]:
    """Run one job for each number of dominators m among the same q parties, all far from each other."""
    rows = []
    for count in counts:
        placed = Layout(layout.parties, count, layout.latency_s)
        rows.append({"active": count, **await _measured(pooled, placed, train)})
    title = f"{pooled.name}, q = {layout.parties}, {layout.latency_s * 1e3:g} ms, batch {train['batch_size']}"
    _finish("dominators", rows, "active", title)
    return rows


async def _measured(pooled: Pooled, layout: Layout, train: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="vfl-vfb2-") as folder:
        async with federation(layout, pooled, Path(folder)) as running:
            warm = {**train, "epochs": _WARM_EPOCHS}
            await running.run(warm, {"test_fraction": 0.0}, L2)  # ids are aligned
            _, short = await _run(running, warm)
            done, long = await _run(running, train)
    # Of an epoch: two jobs differ in nothing but epochs, so reading and opening cancel.
    epochs = int(train["epochs"]) - _WARM_EPOCHS
    used = {name: (seconds - short[name]) / epochs for name, seconds in long.items()}
    row = {**_row(done), "processor_s": used, "busiest_s": max(used.values())}
    print(row, flush=True)
    return row


async def _run(running: Federation, train: dict[str, Any]) -> tuple[Run, dict[str, float]]:
    """Run one job; return also the processor seconds that each party spent on it."""
    before = _processor_s(running.processes)
    done = await running.run(train, {"test_fraction": 0.0}, L2)
    return done, {name: now - before[name] for name, now in _processor_s(running.processes).items()}


def _processor_s(processes: Any) -> dict[str, float]:
    return {name: ProcessorTime(process.pid).seconds() for name, process in processes.items()}


def _row(done: Run) -> dict[str, Any]:
    return {
        "seconds_an_epoch": done.seconds[-1] / (len(done.objectives) - 1),
        "objective": done.objectives[-1],
        "updates": done.report["vfb2"]["updates"],
    }


def _finish(name: str, rows: list[dict[str, Any]], over: str, title: str) -> None:
    for row in rows:
        row["speed_up"] = rows[0]["seconds_an_epoch"] / row["seconds_an_epoch"]
        row["work_speed_up"] = rows[0]["busiest_s"] / row["busiest_s"] if over == "parties" else None
    picture = results.keep(name, rows, title=title)
    columns = {
        over: {"parties": "q", "active": "m"}[over],
        "seconds_an_epoch": "s an epoch",
        "speed_up": "speed-up",
        "busiest_s": "processor s an epoch, busiest",
        "work_speed_up": "speed-up of that",
        "delayed_s_an_epoch": "s an epoch, columns delayed",
        "delayed_speed_up": "speed-up of that",
        "objective": "objective",
    }
    results.show(title, rows, columns)
    pictures.speedup(picture, rows, over, title)
