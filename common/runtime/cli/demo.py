"""`vfl demo`: the federation on this machine, beside one computer that holds all columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console

from common.runtime.cli.console import PlainTable, open_console, say
from common.runtime.cli.init import example
from common.runtime.cli.local import OutFolder, default_folder, run_local
from common.runtime.cli.operator import made_folder
from common.runtime.cli.results import cost_table, measured_rows, metric_name, number, summary
from common.runtime.config.local import load_local

if TYPE_CHECKING:
    from common.runtime.cli.pooled import Pooled


def demo(out: OutFolder = None) -> None:
    """Train on two parties' columns on this machine, and compare with pooled data and with B alone."""
    settings = load_local(example("demo.yaml"))
    console = open_console()
    folder = made_folder(out or default_folder(settings.job.job))
    report = run_local(settings, folder, console)
    # Loads scikit-learn: a second that no other command should wait.
    from common.runtime.cli.pooled import pooled_run

    pooled = pooled_run(settings, report)
    _print_comparison(console, report, pooled)
    say(console, f"files: {folder}")


def _print_comparison(console: Console, report: dict[str, Any], pooled: Pooled) -> None:
    console.print()
    say(console, summary(report))
    console.print()
    comparison_table(report, pooled).print(console)
    say(
        console,
        f"largest difference from pooled: loss {pooled.loss_difference:.1e} in any round, "
        f"weights {pooled.weight_difference:.1e}",
    )
    console.print()
    cost_table(report).print(console)
    console.print()


def comparison_table(report: dict[str, Any], pooled: Pooled) -> PlainTable:
    """Return loss and metrics of the federation, of pooled data, and of the active party alone."""
    partition = measured_rows(report)
    table = PlainTable("", "federated", "pooled", "B alone")
    loss = next((one for one in reversed(report["loss_history"]) if one is not None), None)
    loss_alone = next(iter((report.get("reference_losses") or {}).values()), None)
    table.add_row("training loss, last round", number(loss), number(pooled.losses[-1]), number(loss_alone))
    alone = (report.get("lift") or {}).get("local", {}).get(partition) or {}
    for metric, value in report["metrics"][partition].items():
        compared = (value, pooled.metrics.get(metric), alone.get(metric))
        table.add_row(f"{partition} {metric_name(metric)}", *map(number, compared))
    return table
