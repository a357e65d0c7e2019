"""`python -m benchmarks.literal_phe`: seconds per round of the reference run, phe alone and our services.

Both must give the pooled run's losses before a time is printed. They are run in turns, and the fastest run of
each counts: other programs can only make a run slower. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from importlib.metadata import version

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.literal_phe.literal_protocol import run_literally
from benchmarks.literal_phe.reference_run import Floats, ReferenceRun, reference_run
from benchmarks.literal_phe.services import run_services

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
    """Run both in turns; return the fastest run of each, if every run gave the pooled losses."""
    literals, services_runs = [], []
    for _ in range(repeats):
        literals.append(run_literally(run, rounds))
        services_runs.append(run_services(run))
    literal = min(literals, key=lambda one: sum(one.seconds))
    services = min(services_runs, key=lambda one: one.training_s)
    literal_s = statistics.mean(literal.seconds)
    services_s = services.training_s / len(services.losses)
    return {
        "rows": run.rows,
        "columns": run.features.shape[1],
        "key_bits": run.job.crypto.key_bits,
        "precision_bits": run.job.crypto.precision_bits,
        "literal_rounds": rounds,
        "literal_s_per_round": literal_s,
        "literal_loss_difference": max(_checked(run, one.losses, "the literal protocol") for one in literals),
        "services_rounds": len(services.losses),
        "services_s_per_round": services_s,
        "services_loss_difference": max(_checked(run, one.losses, "three services") for one in services_runs),
        "ratio": literal_s / services_s,
    }


def _pinned(wanted: int | None) -> int:
    """Keep this process and all that it starts on some of its cores; return how many."""
    allowed = sorted(os.sched_getaffinity(0))
    if wanted is not None:
        if not 1 <= wanted <= len(allowed):
            raise SystemExit(f"--cores must be from 1 to {len(allowed)}")
        os.sched_setaffinity(0, allowed[:wanted])
    return wanted or len(allowed)


def _checked(run: ReferenceRun, losses: Floats, who: str) -> float:
    """Return the largest difference from the pooled run's losses, or end without a time."""
    difference = float(np.abs(losses - run.pooled_losses(len(losses))).max())
    if not difference <= LOSS_TOLERANCE:
        raise SystemExit(f"{who} did not give the pooled run's losses (largest difference {difference:.1e})")
    return difference


def _print_table(result: dict[str, float]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for heading in ("", "s per round", "rounds", "largest loss difference from pooled"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for who, name in (
        ("literal protocol with phe, one process", "literal"),
        ("three services, mutual TLS", "services"),
    ):
        table.add_row(
            who,
            f"{result[f'{name}_s_per_round']:.2f}",
            str(result[f"{name}_rounds"]),
            f"{result[f'{name}_loss_difference']:.1e}",
        )
    console = Console(width=120, highlight=False)
    console.print(
        f"{result['rows']} rows, {result['columns']} columns, "
        f"{result['key_bits']}-bit key, {result['cores']} cores; "
        f"fastest of {result['repeats']}, load {result['load_before']:.1f} before"
    )
    console.print(table)
    console.print(f"ratio: {result['ratio']:.1f}")


def _short(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
