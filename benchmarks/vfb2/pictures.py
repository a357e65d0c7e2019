"""Pictures of the experiments: one PNG each, readable in print and without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot as plt

_ASYNC, _SYNC, _PLAIN = "#1f5fa8", "#c4551a", "#666666"
_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "figure.dpi": 120,
}
FLOOR = 1e-9


def convergence(path: Path, runs: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draw sub-optimality against time: a row for each latency, a column for each update rule."""
    latencies = sorted({run["latency_ms"] for run in runs})
    updates = [name for name in ("sgd", "svrg", "saga") if any(run["update"] == name for run in runs)]
    with plt.rc_context(_STYLE):
        size = (max(5.4, 3.1 * len(updates)), 2.5 * len(latencies) + 0.8)
        figure, grid = plt.subplots(len(latencies), len(updates), figsize=size, sharey=True, squeeze=False)
        for row, latency in enumerate(latencies):
            for column, update in enumerate(updates):
                axes = grid[row, column]
                chosen = [r for r in runs if (r["latency_ms"], r["update"]) == (latency, update)]
                for run in chosen:
                    _curve(axes, run)
                axes.set_yscale("log")
                axes.set_xlim(left=0)
                axes.axhline(1e-4, color=_PLAIN, linewidth=0.8, linestyle=":")
                axes.set_title(f"{update}, {latency:g} ms", fontsize=9)
                if row == len(latencies) - 1:
                    axes.set_xlabel("seconds of training")
                if column == 0:
                    axes.set_ylabel("sub-optimality")
        grid[0, -1].legend(loc="upper right", frameon=False)
        figure.suptitle(title.replace("; q =", "\nq ="), x=0.01, ha="left", fontsize=9)
        figure.tight_layout()
        figure.savefig(path)
        plt.close(figure)


def _curve(axes: Any, run: Mapping[str, Any]) -> None:
    asynchronous = run["mode"] == "async"
    gaps = np.maximum(np.array(run["gaps"]), FLOOR)
    axes.plot(
        run["seconds"],
        gaps,
        color=_ASYNC if asynchronous else _SYNC,
        linestyle="-" if asynchronous else "--",
        marker="o" if asynchronous else "s",
        markersize=3,
        linewidth=1.4,
        label="asynchronous" if asynchronous else "synchronous twin",
    )


def speedup(path: Path, rows: Sequence[Mapping[str, Any]], over: str, title: str) -> None:
    """Draw how many times faster an epoch is than with the fewest, against the ideal."""
    counts = [row[over] for row in rows]
    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(figsize=(4.6, 3.4))
        for key, color, style, label in (
            ("speed_up", _ASYNC, "o-", "measured"),
            ("work_speed_up", _SYNC, "s--", "processor seconds of the busiest party"),
            ("delayed_speed_up", _ASYNC, "^-.", "each column delayed (emulation)"),
        ):
            if all(row.get(key) is not None for row in rows):
                axes.plot(counts, [row[key] for row in rows], style, color=color, label=label, markersize=4)
        axes.plot(counts, [count / counts[0] for count in counts], ":", color=_PLAIN, label="ideal")
        axes.set_xlabel({"parties": "parties q", "active": "dominators m"}[over])
        axes.set_ylabel("speed-up")
        axes.set_xticks(counts)
        axes.set_ylim(bottom=0)
        axes.set_title(title, loc="left", fontsize=10)
        axes.legend(frameon=False)
        figure.tight_layout()
        figure.savefig(path)
        plt.close(figure)


def losslessness(path: Path, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draw test AUC of every seed: pooled, VFB², and the label holder's block alone."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    shown = (
        ("block_only", "label holder's block", _PLAIN, "^"),
        ("pooled", "pooled, scikit-learn", _SYNC, "s"),
        ("vfb2", "VFB²", _ASYNC, "o"),
    )
    with plt.rc_context(_STYLE):
        figure, grid = plt.subplots(1, len(sets), figsize=(3.2 * len(sets), 3.2), squeeze=False)
        for axes, name in zip(grid[0], sets, strict=True):
            chosen = [row for row in rows if row["set"] == name]
            for at, (key, label, color, marker) in enumerate(shown):
                values = [row["auc"][key] for row in chosen]
                places = at + np.linspace(-0.18, 0.18, len(values))
                axes.plot(places, values, marker, color=color, markersize=4, alpha=0.8, label=label)
                axes.hlines(np.mean(values), at - 0.28, at + 0.28, color=color, linewidth=1.2)
            axes.set_xticks(range(3), ["block only", "pooled", "VFB²"])
            axes.set_title(name, fontsize=9)
        grid[0, 0].set_ylabel("test AUC, one mark a seed")
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
        figure.tight_layout()
        figure.savefig(path)
        plt.close(figure)


def rates(path: Path, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draw dominated updates a second beside the bare echo stream."""
    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(figsize=(7.4, 3.2))
        places = np.arange(len(rows))
        echo = [row["echo_per_s"] for row in rows]
        ours = [row["updates_per_s"] for row in rows]
        for values, shift, color, hatch, label in (
            (echo, -0.2, "#c9c9c9", "//", "bare echo stream"),
            (ours, 0.2, _ASYNC, "", "dominated updates"),
        ):
            bars = axes.bar(places + shift, values, 0.38, color=color, hatch=hatch, label=label)
            axes.bar_label(bars, [f"{value:,.0f}" for value in values], fontsize=8)
        names = [f"batch {row['batch_size']},\n{row['under_way']} under way" for row in rows]
        axes.set_xticks(places, names, fontsize=8)
        axes.set_ylabel("a second")
        axes.set_title(title.replace(": ", "\n"), loc="left", fontsize=9)
        axes.margins(y=0.15)
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        figure.tight_layout()
        figure.savefig(path)
        plt.close(figure)
