"""The loss curve as SVG, for a page that loads nothing from anywhere."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

INK, MUTED, LINE, ACCENT, ALONE = "#1d2733", "#5d6875", "#d9dee3", "#14616b", "#b4762a"

# Losses that fall by more than this factor are easier to read on a logarithmic axis.
_LOG_FROM = 30.0


def loss_curve(
    losses: Sequence[float | None], references: Mapping[str, float], size_in: tuple[float, float], unit: str
) -> str:
    """Return an inline SVG of the losses by round; rounds without a loss are left out.

    Args:
        losses: One a round, None where it was not decrypted.
        references: Horizontal lines by label, such as the best loss of B alone.
        size_in: Width and height in inches of 72 CSS pixels.
        unit: What a round is called.
    """
    points = [
        (at, loss) for at, loss in enumerate(losses, start=1) if loss is not None and math.isfinite(loss)
    ]
    # Text stays text in the page's own font, and the same run gives the same bytes.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "colonnade", "font.size": 10}):
        figure = Figure(figsize=size_in, layout="constrained")
        axes = figure.subplots()
        rounds, values = [at for at, _ in points], [loss for _, loss in points]
        axes.plot(
            rounds, values, color=ACCENT, linewidth=2, marker="o" if len(points) < 25 else "", markersize=4
        )
        for label, level in references.items():
            axes.axhline(level, color=ALONE, linewidth=1.2, linestyle=(0, (5, 4)))
            axes.annotate(
                label,
                (1.0, level),
                xycoords=("axes fraction", "data"),
                xytext=(0, 4),
                textcoords="offset points",
                ha="right",
                color=ALONE,
                fontsize=9,
                parse_math=False,
            )
        everything = [*values, *references.values()]
        if everything and min(everything) > 0 and max(everything) > _LOG_FROM * min(everything):
            axes.set_yscale("log")
        axes.set_xlabel(unit, color=MUTED)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axes.margins(x=0.02, y=0.1)
        axes.grid(axis="y", color=LINE, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(LINE)
        axes.tick_params(colors=MUTED, length=0)
        return inline(figure, f"training loss by {unit}")


def inline(figure: Figure, label: str) -> str:
    """Return a drawing as SVG that takes the width of its column; `label` is for screen readers."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    # Without fixed sizes the drawing takes the width of its column; the title speaks to screen readers.
    head, body = svg.split(">", 1)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'font-family: [^;"]*;?', "", body)
    return f'{head} role="img" aria-label="{label}">{body}'
