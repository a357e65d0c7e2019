"""AUC against the overlap, and predictions against what happened, as SVG for a page that loads nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from common.nets.scores import CalibrationBin
from party_b.reporting.figures import ACCENT, ALONE, INK, LINE, MUTED, inline

_COLOURS: Mapping[str, str] = {"local": ALONE, "jpl": ACCENT, "splitnn": INK}
_OTHERS = ("#7b8fa1", "#93b3b8", "#c9a36a", "#8a7aa8", "#b9c2c9")


def overlap_curves(by_overlap: Mapping[str, Mapping[float, tuple[float, float]]]) -> str:
    """Return an inline SVG: mean AUC on common test rows, with intervals, by the part of common rows used."""
    with _style():
        figure = Figure(figsize=(9.6, 3.8), layout="constrained")
        axes = figure.subplots()
        others = iter(_OTHERS)
        for at, (method, points) in enumerate(by_overlap.items()):
            overlaps = sorted(points)
            means = [points[one][0] for one in overlaps]
            halves = [points[one][1] if math.isfinite(points[one][1]) else 0.0 for one in overlaps]
            colour = _COLOURS.get(method) or next(others, MUTED)
            # Intervals of several methods at one overlap would lie upon each other.
            places = [one + 0.004 * (at - len(by_overlap) / 2) for one in overlaps]
            axes.errorbar(
                places,
                means,
                yerr=halves,
                label=method,
                color=colour,
                linewidth=1.8,
                marker="o",
                markersize=4,
                elinewidth=1,
                capsize=2,
            )
        axes.set_xlabel("part of the common training rows that is used", color=MUTED)
        axes.set_ylabel("AUC, common test rows", color=MUTED)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.legend(frameon=False, fontsize=9, ncols=1, loc="center left", bbox_to_anchor=(1.0, 0.5))
        _quiet(axes)
        return inline(figure, "AUC by overlap")


def calibration_curve(bins: Sequence[CalibrationBin]) -> str:
    """Return an inline SVG: the share of 1 in bins of equally many rows, by their mean prediction."""
    with _style():
        figure = Figure(figsize=(4.7, 3.6), layout="constrained")
        axes = figure.subplots()
        most = max([0.05, *(max(one.predicted, one.observed) for one in bins)]) * 1.05
        axes.plot([0, most], [0, most], color=LINE, linewidth=1.2, linestyle=(0, (5, 4)))
        axes.plot(
            [one.predicted for one in bins],
            [one.observed for one in bins],
            color=ACCENT,
            linewidth=1.8,
            marker="o",
            markersize=4,
        )
        axes.set_xlabel("predicted probability", color=MUTED)
        axes.set_ylabel("share of positives", color=MUTED)
        _quiet(axes)
        return inline(figure, "calibration")


def _style() -> AbstractContextManager[None]:
    # Text stays text in the page's own font, and the same run gives the same bytes.
    return mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "colonnade", "font.size": 10})


def _quiet(axes: Axes) -> None:
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(colors=MUTED, length=0)
