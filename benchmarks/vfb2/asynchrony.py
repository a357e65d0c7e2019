"""Experiment 1: sub-optimality against time, asynchronous against synchronous, one party slower."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.vfb2 import pictures, results
from benchmarks.vfb2.data import Pooled
from benchmarks.vfb2.federation import Federation, Layout, Run, federation
from benchmarks.vfb2.pooled import fit

L2 = 1e-4
TARGET = 1e-4


@dataclass(frozen=True, slots=True)
class Settings:
    """What is run.

    Attributes:
        latencies_ms: One way, between parties.
        updates: With the step size and the number of epochs of each.
        slower_by: Of one passive party.
    """

    latencies_ms: Sequence[float] = (5.0, 0.0, 20.0)
    updates: Sequence[tuple[str, float, int]] = (("svrg", 0.1, 16), ("saga", 0.1, 16), ("sgd", 0.05, 16))
    slower_by: float = 0.4
    batch_size: int = 16
    max_staleness: int = 4


async def run(pooled: Pooled, settings: Settings, layout: Layout) -> list[dict[str, Any]]:
    """Run every combination; both modes take turns on the same services."""
    optimum = fit(pooled.features, pooled.labels, L2).objective
    rows: list[dict[str, Any]] = []
    for latency_ms in settings.latencies_ms:
        with tempfile.TemporaryDirectory(prefix="vfl-vfb2-") as folder:
            placed = Layout(layout.parties, layout.active, latency_ms / 1e3)
            async with federation(placed, pooled, Path(folder)) as parties:
                rows += [row async for row in _runs(parties, settings, latency_ms, optimum)]
    _report(pooled, rows, settings, layout)
    return rows


async def _runs(parties: Federation, settings: Settings, latency_ms: float, optimum: float) -> Any:
    for update, step, epochs in settings.updates:
        for mode in ("async", "sync"):
            train = {
                "update": update,
                "loss": "logistic",
                "batch_size": settings.batch_size,
                "epochs": epochs,
                "learning_rate": step,
                "decay": 0.5 if update == "sgd" else 0.0,
                "max_staleness": settings.max_staleness,
                "mode": mode,
            }
            done = await parties.run(train, {"test_fraction": 0.0}, L2, settings.slower_by)
            row = _row(done, optimum)
            row |= {"update": update, "mode": mode, "latency_ms": latency_ms, "learning_rate": step}
            print(
                {key: row[key] for key in ("update", "mode", "latency_ms", "to_target_s", "end")}, flush=True
            )
            yield row


def _row(done: Run, optimum: float) -> dict[str, Any]:
    gaps = [objective - optimum for objective in done.objectives]
    reached = next((at for at, gap in enumerate(gaps) if gap < TARGET), None)
    return {
        "seconds": [round(second, 3) for second in done.seconds],
        "gaps": gaps,
        "to_target_s": None if reached is None else round(done.seconds[reached], 3),
        "epochs_to_target": reached,
        "end": gaps[-1],
        "seconds_an_epoch": done.seconds[-1] / (len(gaps) - 1),
        "staleness": done.report["vfb2"]["staleness"],
    }


def _report(pooled: Pooled, rows: list[dict[str, Any]], settings: Settings, layout: Layout) -> None:
    for row in rows:
        same = ("update", "latency_ms")
        twin = next(r for r in rows if r["mode"] != row["mode"] and all(r[k] == row[k] for k in same))
        if row["mode"] == "async":
            row["ratio_of_an_epoch"] = row["seconds_an_epoch"] / twin["seconds_an_epoch"]
            if row["to_target_s"] and twin["to_target_s"]:
                row["ratio_to_target"] = row["to_target_s"] / twin["to_target_s"]
    title = (
        f"{pooled.name}, {len(pooled.labels):,} rows × {pooled.features.shape[1]}; q = {layout.parties}, "
        f"m = {layout.active}, batch {settings.batch_size}; one party {settings.slower_by:.0%} slower"
    )
    picture = results.keep("async", rows, title=title, target=TARGET, l2=L2)
    columns = {
        "latency_ms": "latency ms",
        "update": "update",
        "mode": "mode",
        "epochs_to_target": "epochs to 1e-4",
        "to_target_s": "seconds to 1e-4",
        "ratio_to_target": "async / sync",
        "seconds_an_epoch": "s an epoch",
        "ratio_of_an_epoch": "async / sync, epoch",
        "end": "gap at the end",
    }
    results.show(title, rows, columns)
    pictures.convergence(picture, rows, title)
