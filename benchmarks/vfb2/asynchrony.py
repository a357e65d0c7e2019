"""Experiment 1: sub-optimality against time, asynchronous against synchronous, one party slower.

Each mode takes the step that suits it best, as the paper does: updates that are stale bear a smaller one. So
the asynchronous run needs more epochs, and the comparison is of the whole time to the target.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.vfb2 import pictures, results
from benchmarks.vfb2.data import Pooled
from benchmarks.vfb2.federation import Federation, Layout, Run, federation
from benchmarks.vfb2.pooled import fit

L2 = 1e-4
TARGET = 1e-4
NEARLY = 1e-3


@dataclass(frozen=True, slots=True)
class Pace:
    """How an update rule is run in one mode.

    Attributes:
        step: η of the first epoch.
        epochs: One or two more than the target takes.
        decay: Of the step size over epochs; SGD does not converge without.
    """

    step: float
    epochs: int
    decay: float = 0.0


# Found on this data by trying 0.1, 0.15, 0.2, …, 0.5 without a network, as stale as between services.
PACES: Mapping[str, Mapping[str, Pace]] = {
    "svrg": {"async": Pace(0.15, 6), "sync": Pace(0.4, 4)},
    "saga": {"async": Pace(0.15, 6), "sync": Pace(0.4, 4)},
    # SGD's noise falls with the step alone: so the step falls, and the target takes more epochs.
    "sgd": {"async": Pace(0.3, 18, 1.0), "sync": Pace(0.5, 14, 2.0)},
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What is run.

    Attributes:
        paces: By update rule and mode.
        latencies_ms: One way, between parties.
        slower_by: Of one passive party.
    """

    paces: Mapping[str, Mapping[str, Pace]]
    latencies_ms: Sequence[float] = (5.0, 0.0, 20.0)
    slower_by: float = 0.4
    batch_size: int = 128
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
    for update, modes in settings.paces.items():
        for mode, pace in modes.items():
            train = {
                "update": update,
                "loss": "logistic",
                "batch_size": settings.batch_size,
                "epochs": pace.epochs,
                "learning_rate": pace.step,
                "decay": pace.decay,
                "max_staleness": settings.max_staleness,
                "mode": mode,
            }
            done = await parties.run(train, {"test_fraction": 0.0}, L2, settings.slower_by)
            row = _row(done, optimum)
            row |= {"update": update, "mode": mode, "latency_ms": latency_ms}
            row |= {"learning_rate": pace.step, "decay": pace.decay}
            print(
                {key: row[key] for key in ("update", "mode", "latency_ms", "to_target_s", "end")}, flush=True
            )
            yield row


def _row(done: Run, optimum: float) -> dict[str, Any]:
    gaps = [objective - optimum for objective in done.objectives]
    reached, nearly = _reached(gaps, TARGET), _reached(gaps, NEARLY)
    return {
        "seconds": [round(second, 3) for second in done.seconds],
        "gaps": gaps,
        "to_target_s": None if reached is None else round(done.seconds[reached], 3),
        "nearly_s": None if nearly is None else round(done.seconds[nearly], 3),
        "epochs_to_target": reached,
        "end": gaps[-1],
        "seconds_an_epoch": done.seconds[-1] / (len(gaps) - 1),
        "staleness": done.report["vfb2"]["staleness"],
    }


def _reached(gaps: Sequence[float], target: float) -> int | None:
    """Return the epoch at whose end the gap is below a target for the first time."""
    return next((at for at, gap in enumerate(gaps) if gap < target), None)


def _report(pooled: Pooled, rows: list[dict[str, Any]], settings: Settings, layout: Layout) -> None:
    for row in rows:
        same = ("update", "latency_ms")
        twin = next(r for r in rows if r["mode"] != row["mode"] and all(r[k] == row[k] for k in same))
        if row["mode"] == "async":
            row["ratio_of_an_epoch"] = row["seconds_an_epoch"] / twin["seconds_an_epoch"]
            for ratio, key in (("ratio_to_target", "to_target_s"), ("ratio_nearly", "nearly_s")):
                row[ratio] = row[key] / twin[key] if row[key] and twin[key] else None
    title = (
        f"{pooled.name}, {len(pooled.labels):,} rows × {pooled.features.shape[1]}; q = {layout.parties}, "
        f"m = {layout.active}, batch {settings.batch_size}; one party {settings.slower_by:.0%} slower"
    )
    rows = [*results.others("async", rows, ("update", "latency_ms"), title), *rows]
    picture = results.keep("async", rows, title=title, target=TARGET, l2=L2)
    columns = {
        "latency_ms": "latency ms",
        "update": "update",
        "mode": "mode",
        "learning_rate": "step",
        "epochs_to_target": "epochs to 1e-4",
        "to_target_s": "seconds to 1e-4",
        "ratio_to_target": "async / sync",
        "nearly_s": "seconds to 1e-3",
        "ratio_nearly": "async / sync",
        "seconds_an_epoch": "s an epoch",
        "ratio_of_an_epoch": "async / sync, epoch",
        "end": "gap at the end",
    }
    results.show(title, rows, columns)
    pictures.convergence(picture, rows, title)
