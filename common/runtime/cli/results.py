"""Prints what a job's report.json says, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from rich.console import Console

from common.data.wording import counted
from common.runtime.cli.console import PlainTable, duration, say, size
from common.runtime.config.job_kinds import round_word

_METRIC_NAMES = {
    "r2": "R²",
    "mse": "MSE",
    "rmse": "RMSE",
    "mae": "MAE",
    "auc": "AUC",
    "ks": "KS",
    "log_loss": "log loss",
}

Report = Mapping[str, Any]


def print_results(console: Console, report: Report) -> None:
    """Print rounds, loss, metrics against the active party alone, and the cost by party."""
    console.print()
    if report.get("algorithm") == "predict":
        print_scored(console, report)
        return
    say(console, summary(report))
    console.print()
    for table in (lift_table(report), *comparison_tables(report)):
        table.print(console)
        console.print()
    cost_table(report).print(console)
    console.print()


def print_scored(console: Console, report: Report) -> None:
    """Print what a prediction's report.json says."""
    rows, model = report["rows"], report["model"]
    say(
        console,
        f"{report['job']}: {rows['scored']:,} rows scored with the model of {model['job_id']} "
        f"in {duration(report['seconds']['total'])}",
    )
    for note in report["notes"]:
        say(console, f"  {note}")
    measured = report["metrics"]["new"]
    if measured:
        console.print()
        _metrics_table("on rows with a label", measured).print(console)
    console.print()
    cost_table(report).print(console)
    console.print()


def lift_table(report: Report) -> PlainTable:
    """Return the metrics of the federation beside those of the active party alone."""
    rows_kind = measured_rows(report)
    title = f"on {report['rows'].get(rows_kind, '?')} {rows_kind} rows"
    if report.get("algorithm") == "local":
        return _metrics_table(title, report["metrics"][rows_kind])
    table = PlainTable(title, "federated", "B alone")
    lift = report.get("lift") or {}
    federated = _metrics(lift, "federated", rows_kind) or report["metrics"].get(rows_kind) or {}
    alone = _metrics(lift, "local", rows_kind)
    for metric, value in federated.items():
        table.add_row(metric_name(metric), number(value), number(alone.get(metric)))
    return table


def comparison_tables(report: Report) -> list[PlainTable]:
    """Return the paired differences of a comparison over seeds, and what each term of jpl is worth."""
    found = report.get("networks") or {}
    tables = []
    if found.get("compared"):
        table = PlainTable(f"{found['own']}, AUC points against", "rows used", "± is 95 %", "seeds", "says")
        for one in found["compared"]:
            table.add_row(
                one["reference"], f"{one['overlap']:.0%}", _points(one), str(one["seeds"]), one["says"]
            )
        tables.append(table)
    if found.get("ablation"):
        table = PlainTable("jpl without one term, AUC points", "± is 95 %", "seeds", "says")
        for one in found["ablation"]:
            term = one["method"].removeprefix("jpl − ").replace("_", " ")
            says = {"worse": "the term helps", "better": "the term does harm"}.get(one["says"], one["says"])
            table.add_row(term, _points(one), str(one["seeds"]), says)
        tables.append(table)
    return tables


def _points(one: Mapping[str, Any]) -> str:
    return f"{one['mean']:+.2f} ± {one['half_width']:.2f}"


def _metrics_table(title: str, measured: Mapping[str, Any]) -> PlainTable:
    table = PlainTable(title, "value")
    for name, value in measured.items():
        table.add_row(metric_name(name), number(value))
    return table


def cost_table(report: Report) -> PlainTable:
    """Return bytes and seconds by party."""
    seconds = dict(_seconds_by_party(report))
    table = PlainTable("party", "sent", "received", *(["busy"] if seconds else []))
    for party, traffic in report["traffic"].items():
        row = [party, size(traffic["sent_bytes"]), size(traffic["received_bytes"])]
        table.add_row(*row, *([duration(seconds[party]) if party in seconds else "–"] if seconds else []))
    return table


def metric_name(metric: str) -> str:
    """Return how a metric is written."""
    return _METRIC_NAMES.get(metric, metric)


def number(value: Any) -> str:
    """Return a measured number with the digits that mean something."""
    return f"{value:.6g}" if isinstance(value, int | float) else "–"


def measured_rows(report: Report) -> Literal["test", "train"]:
    """Return which rows the metrics speak of: the training rows only when there are no test rows."""
    return "test" if report["metrics"].get("test") else "train"


def summary(report: Report) -> str:
    """Return the outcome of a job in one line."""
    losses = [loss for loss in report.get("loss_history") or [] if loss is not None]
    unit = round_word(report["algorithm"])
    parts = [
        f"{counted(report['rounds'], unit)} in {duration(report['seconds']['total'])}",
        f"stopped by {report['stopped_because']}",
    ]
    if losses:
        parts.append(f"loss {number(losses[0])} → {number(losses[-1])}")
    sentence = f"{report['job']}: {'; '.join(parts)}"
    return f"{sentence}\n{report['verdict']}" if report.get("verdict") else sentence


def _metrics(lift: Mapping[str, Any], who: str, rows_kind: str) -> Mapping[str, Any]:
    return (lift.get(who) or {}).get(rows_kind) or {}


def _seconds_by_party(report: Report) -> Iterator[tuple[str, float]]:
    for party, value in (report["seconds"].get("by_party") or {}).items():
        if not isinstance(value, Mapping):
            continue
        busy = sum(value.values())
        if busy:
            yield party, float(busy)
