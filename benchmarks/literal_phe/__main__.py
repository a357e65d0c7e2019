"""`python -m benchmarks.literal_phe`: seconds per round of the reference run, phe alone and our services.

Both must give the pooled run's losses before a time is printed. They are run in turns, and the fastest run of
each counts: other programs can only make a run slower. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Mapping
from importlib.metadata import version

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.literal_phe.literal_protocol import LiteralResult, run_literally
from benchmarks.literal_phe.reference_run import Floats, ReferenceRun, reference_run
from benchmarks.literal_phe.services import Kind, ServicesResult, run_services

SERVICES: Mapping[Kind, str] = {
    "rowwise": "row by row",
    "rowwise_short": "row by row, short noise",
    "gram": "Gram rounds",
}
# Absolute, of losses near 4e6: what 50 bits of precision and doubles leave.
LOSS_TOLERANCE = 1e-6


def main() -> None:
    """Measure, check, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(
        description="Seconds per round: the literal protocol against three services."
    )
    parser.add_argument("--rounds", type=int, default=2, help="rounds of the literal protocol")
    parser.add_argument("--repeats", type=int, default=3, help="how often each of the two is run")
    parser.add_argument("--cores", type=int, help="pin everything to so many cores; all of them by default")
    options = parser.parse_args()
    setting = {"cores": _pinned(options.cores), "load_before": os.getloadavg()[0], "repeats": options.repeats}
    result = setting | _measured(reference_run(), options.rounds, options.repeats)
    _print_table(result)
    versions = {name: version(name) for name in ("colonnade", "phe", "gmpy2")}
    measured = {name: _short(value) for name, value in result.items()}
    print(json.dumps({"benchmark": "literal_phe", **versions, **measured}))


def _measured(run: ReferenceRun, rounds: int, repeats: int) -> dict[str, float]:
    """Run all in turns; return the fastest run of each, if every run gave the pooled losses."""
    literals: list[LiteralResult] = []
    services: dict[Kind, list[ServicesResult]] = {kind: [] for kind in SERVICES}
    for _ in range(repeats):
        literals.append(run_literally(run, rounds))
        for kind, done in services.items():
            done.append(run_services(run, kind))
    literal = min(literals, key=lambda one: sum(one.seconds))
    literal_s = statistics.mean(literal.seconds)
    result: dict[str, float] = {
        "rows": run.rows,
        "columns": run.features.shape[1],
        "key_bits": run.job.crypto.key_bits,
        "precision_bits": run.job.crypto.precision_bits,
        "literal_rounds": rounds,
        "literal_s_per_round": literal_s,
        "literal_loss_difference": max(
            _checked(one.losses, run.pooled_losses(rounds), "the literal protocol") for one in literals
        ),
    }
    for name, runs in services.items():
        best = min(runs, key=lambda one: one.round_s)
        result |= {
            f"{name}_rounds": len(best.losses),
            f"{name}_s_per_round": best.round_s,
            f"{name}_s_once": best.once_s,
            f"{name}_loss_difference": max(
                _checked(one.losses, one.pooled, f"{name} rounds") for one in runs
            ),
            f"{name}_ratio": literal_s / best.round_s,
        }
    return result


def _pinned(wanted: int | None) -> int:
    """Keep this process and all that it starts on some of its cores; return how many."""
    allowed = sorted(os.sched_getaffinity(0))
    if wanted is not None:
        if not 1 <= wanted <= len(allowed):
            raise SystemExit(f"--cores must be from 1 to {len(allowed)}")
        os.sched_setaffinity(0, allowed[:wanted])
    return wanted or len(allowed)


def _checked(losses: Floats, pooled: Floats, who: str) -> float:
    """Return the largest difference from the pooled run's losses, or end without a time."""
    difference = float(np.abs(losses - pooled).max())
    if not difference <= LOSS_TOLERANCE:
        raise SystemExit(f"{who} did not give the pooled run's losses (largest difference {difference:.1e})")
    return difference


def _print_table(result: dict[str, float]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for heading in (
        "",
        "s per round",
        "once s",
        "rounds",
        "× literal",
        "largest loss difference from pooled",
    ):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for who, name in (
        ("literal protocol with phe, one process", "literal"),
        *((f"three services, mutual TLS, {what}", kind) for kind, what in SERVICES.items()),
    ):
        table.add_row(
            who,
            f"{result[f'{name}_s_per_round']:.3f}",
            f"{result.get(f'{name}_s_once', 0.0):.2f}",
            str(result[f"{name}_rounds"]),
            f"{result.get(f'{name}_ratio', 1.0):.1f}",
            f"{result[f'{name}_loss_difference']:.1e}",
        )
    console = Console(width=130, highlight=False)
    console.print(
        f"{result['rows']} rows, {result['columns']} columns, "
        f"{result['key_bits']}-bit key, {result['cores']} cores; "
        f"fastest of {result['repeats']}, load {result['load_before']:.1f} before"
    )
    console.print(table)


def _short(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
