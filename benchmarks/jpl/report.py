"""Tables and the picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.jpl.trials import SPLITNN, Plan, Result
from common.nets.lift import Difference, Outcome, mean_auc, paired, verdict

_REFERENCES = ("local", "local_twice", "fpd_usual_twice", "fpd_twice", "jpl")
_DRAWN = ("local", "local_twice", "fpd_twice", "jpl")


def print_lift(console: Console, plan: Plan, outcomes: Sequence[Outcome], overlap: float) -> None:
    """Print mean test AUC of every method and its paired differences, in AUC points with 95 % intervals."""
    names = list(dict.fromkeys(one.method for one in outcomes))
    seeds = len({one.seed for one in outcomes})
    table = Table(title=f"{plan.name}, {plan.most_rows or 'all'} rows, {overlap:.0%} overlap, {seeds} seeds")
    table.add_column("method")
    for column in ("AUC", "log loss", "calibration", *(f"− {name}" for name in _REFERENCES)):
        table.add_column(column, justify="right")
    for name in names:
        chosen = [one.test for one in outcomes if one.method == name and one.overlap == overlap]
        means = [np.mean([getattr(one, key) for one in chosen]) for key in ("log_loss", "calibration_error")]
        cells = [_shown(outcomes, name, reference, overlap) for reference in _REFERENCES]
        auc = mean_auc(outcomes, name, overlap)
        table.add_row(name, f"{auc:.4f}", f"{means[0]:.4f}", f"{means[1]:.4f}", *cells)
    console.print(table)
    references = ("local_twice", "jpl_without_a", "fpd_twice")
    for sentence in verdict({one: paired(outcomes, "jpl", one, overlap) for one in references}):
        console.print(sentence)


def print_leaks(
    console: Console, plan: Plan, results: Mapping[str, Sequence[Result]], overlap: float
) -> None:
    """Print what A reads from the gradients behind each protection, and what that costs B."""
    table = Table(title=f"{plan.name}, {plan.most_rows or 'all'} rows, {overlap:.0%} overlap")
    for column in ("protection", "norm", "direction", "over epochs"):
        table.add_column(column, justify="left" if column == "protection" else "right")
    for column in ("splitnn", "fpd", "jpl", "jpl − local"):
        table.add_column(column, justify="right")
    bare = [one for result in next(iter(results.values())) for one in result.outcomes]
    local = [one for one in bare if one.method == "local"]
    for label, seeds in results.items():
        leaks = [
            np.nanmean([getattr(one.leak, key) for one in seeds])
            for key in ("norm", "direction", "over_epochs")
        ]
        outcomes = [one for result in seeds for one in result.outcomes if one.method != "local"]
        aucs = [mean_auc(outcomes, name, overlap) for name in (SPLITNN, "fpd", "jpl")]
        cells = [f"{one:.3f}" for one in leaks] + [f"{one:.4f}" for one in aucs]
        table.add_row(label, *cells, _difference(paired([*outcomes, *local], "jpl", "local", overlap)))
    console.print(table)


def draw(path: Path, name: str, outcomes: Sequence[Outcome]) -> None:
    """Draw mean test AUC against the overlap, with 95 % intervals of the difference from Local."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    overlaps = sorted({one.overlap for one in outcomes})
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for at, method in enumerate(_DRAWN):
        means = [mean_auc(outcomes, method, overlap) for overlap in overlaps]
        widths = [paired(outcomes, method, "local", overlap).half_width / 100 for overlap in overlaps]
        bars = [0.0 if math.isnan(one) else one for one in widths]
        beside = 0.5 * (at - (len(_DRAWN) - 1) / 2)  # bars at one overlap would hide each other
        places = [100 * one + beside for one in overlaps]
        label = method.replace("_twice", " ×2")
        axes.errorbar(places, means, yerr=bars, marker="o", capsize=3, label=label)
    axes.set_xlabel("overlap: share of B's rows that A has too, %")
    axes.set_ylabel("AUC on B's test rows, from B's columns alone")
    axes.set_title(f"{name}\n(bars: 95 % intervals of the difference from local)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def _shown(outcomes: Sequence[Outcome], name: str, reference: str, overlap: float) -> str:
    return "" if name in (reference, SPLITNN) else _difference(paired(outcomes, name, reference, overlap))


def _difference(one: Difference) -> str:
    return f"{one.mean:+.2f} ± {one.half_width:.2f}" if one.seeds > 1 else f"{one.mean:+.2f}"
