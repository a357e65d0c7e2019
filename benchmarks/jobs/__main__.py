"""`python -m benchmarks.jobs`: whole jobs by rows, columns, key and kind of rounds; one JSON line each.

Each result is checked before its time counts: gradient descent against the same descent on pooled data,
conjugate gradients against the closed form. The default takes some minutes, --full takes hours, and
--only NAME picks by a part of the name.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from pyarrow import csv
from rich.console import Console
from rich.table import Table

from benchmarks.jobs.data import L2, Case, write_case
from benchmarks.process_tree import Usage, Watcher
from common.glm.ridge import fit_ridge, penalties, pooled_gradient_descent, with_intercept

_AT_MOST_S = 6 * 3600
_LARGE = (Case(100_000, 40, 2048, "gram", "cg", 100), Case(1_000_000, 20, 2048, "gram", "cg", 60))
# Of the weights, relative to the largest: what 32 bits of precision leave.
_TOLERANCE = 1e-6


def main() -> None:
    """Run the cases, print each as a line of JSON as soon as it is done, and all of them as a table."""
    parser = argparse.ArgumentParser(description="Whole jobs between three services on this machine.")
    parser.add_argument("--full", action="store_true", help="all sizes, up to 100,000 rows; takes hours")
    parser.add_argument(
        "--large", action="store_true", help="100,000 x 40 and 1,000,000 x 20, Gram rounds and cg"
    )
    parser.add_argument("--only", default="", help="run cases whose name has this part")
    options = parser.parse_args()
    results = []
    for case in _LARGE if options.large else _cases(full=options.full):
        if options.only in case.name:
            results.append(_measured(case))
            print(json.dumps(results[-1]), flush=True)
    _print(results)


def _cases(*, full: bool) -> list[Case]:
    """Return gradient descent row by row, and both solvers on Gram rounds, for the sizes in question."""
    rows = (1_000, 10_000, 100_000) if full else (1_000, 10_000)
    cases = []
    for n, d, bits in product(rows, (10, 40), (2048, 3072)):
        small = n * d <= 10_000
        if full or small:
            cases.append(Case(n, d, bits, "rowwise", "gd", 2 if n >= 10_000 else 4))
        if full or small or (d == 10 and bits == 2048):
            cases.append(Case(n, d, bits, "gram", "gd", 20))
            cases.append(Case(n, d, bits, "gram", "cg", 60))
    return cases


def _measured(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="vfl-bench-") as name:
        folder = Path(name)
        config = write_case(case, folder)
        load = os.getloadavg()[0]
        start_s = time.perf_counter()
        with tempfile.TemporaryFile("w+") as errors:
            usage = _run([*_vfl(), "local", "-c", str(config), "--out", str(folder / "out")], errors)
        wall_s = time.perf_counter() - start_s
        report = json.loads((folder / "out" / "report.json").read_text(encoding="utf-8"))
        difference = _checked(case, report, folder)
    phases, rounds = report["seconds"]["by_phase"], report["rounds"]
    expected = report["estimate"]
    return {
        "benchmark": "jobs",
        "case": case.name,
        "rows": case.rows,
        "columns": case.columns,
        "key_bits": case.key_bits,
        "rounds": rounds,
        "weights_off_by": _short(difference),
        "load_before": load,
        "wall_s": _short(wall_s),
        "phases_s": {phase: _short(seconds) for phase, seconds in phases.items()},
        "busy_s": {
            party: {what: _short(seconds) for what, seconds in parts.items()}
            for party, parts in report["seconds"]["by_party"].items()
        },
        "cpu_s": {party: _short(seconds) for party, seconds in usage.cpu_s.items()},
        "sent_bytes": {party: traffic["sent_bytes"] for party, traffic in report["traffic"].items()},
        "peak_mb": {party: round(size / 2**20) for party, size in usage.peak_bytes.items()},
        "largest_process_mb": {party: round(size / 2**20) for party, size in usage.largest_bytes.items()},
        "phase_mb": {
            phase: {party: round(size / 2**20) for party, size in sizes.items()}
            for phase, sizes in usage.phase_bytes.items()
        },
        "expected": {
            "training_s": _short(expected["seconds"]["by_phase"]["training"]),
            "cpu_s": _short(sum(sum(parts.values()) for parts in expected["busy_seconds"].values())),
            "sent_bytes": {party: one["sent_bytes"] for party, one in expected["traffic"].items()},
            "peak_mb": {party: round(size / 2**20) for party, size in expected["memory_bytes"].items()},
        },
    }


def _vfl() -> list[str]:
    return [sys.executable, "-P", "-c", "from common.runtime.cli.entry import main; main()"]


def _run(command: list[str], errors: TextIO) -> Usage:
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env=os.environ | {"PYTHONPATH": root, "PYTHONUNBUFFERED": "1"},
    )
    watcher = Watcher(process)
    process.wait(timeout=_AT_MOST_S)
    if process.returncode:
        errors.seek(0)
        raise SystemExit(f"vfl local ended with exit code {process.returncode}:\n{errors.read()}")
    return watcher.usage()


def _checked(case: Case, report: dict[str, Any], folder: Path) -> float:
    """Return the largest difference of a weight from what pooled data give, or end without a time."""
    features, labels = _pooled(folder)
    train = report["rows"]["train"]
    model = report["model"]
    found = np.concatenate(
        [model["party_a"]["coefficients"], model["party_b"]["coefficients"], [model["party_b"]["intercept"]]]
    )
    if case.solver == "cg":
        wanted = fit_ridge(features, labels, L2, "free")
    else:
        rate = _step(features)
        design = with_intercept(features, "free")
        descent = pooled_gradient_descent(
            design, labels, penalties(features.shape[1], L2, "free"), rate, report["rounds"]
        )
        wanted = descent.weights
    difference = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    if train != case.rows or not difference <= _TOLERANCE:
        raise SystemExit(f"{case.name}: the weights differ from the pooled ones by {difference:.1e}")
    return difference


def _pooled(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return both parties' columns side by side, standardised as they are in the job, and the labels."""
    tables = [csv.read_csv(folder / name).drop_columns("id") for name in ("a.csv", "b.csv")]
    a, b = (np.column_stack([column.to_numpy() for column in table.columns]) for table in tables)
    features = np.column_stack([a, b[:, :-1]])
    return (features - features.mean(axis=0)) / features.std(axis=0), b[:, -1]


def _step(features: np.ndarray) -> float:
    """Return the step size of `learning_rate: auto`: the inverse of the parties' curvatures added up."""
    half, rows = features.shape[1] // 2, len(features)
    own = np.column_stack([features[:, half:], np.ones(rows)])
    curvatures = [float(np.linalg.norm(part, ord=2)) ** 2 / rows + L2 for part in (features[:, :half], own)]
    return 1.0 / sum(curvatures)


def _print(results: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    headings = (
        "case",
        "rounds",
        "aligning s",
        "training s",
        "expected s",
        "CPU s",
        "expected s",
        "MB sent",
        "peak MB",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "case" else "right", no_wrap=True)
    for result in results:
        table.add_row(
            result["case"],
            str(result["rounds"]),
            f"{result['phases_s']['aligning']:.3g}",
            f"{result['phases_s']['training']:.3g}",
            f"{result['expected']['training_s']:.3g}",
            f"{sum(result['cpu_s'].values()):.3g}",
            f"{result['expected']['cpu_s']:.3g}",
            f"{sum(result['sent_bytes'].values()) / 1e6:.3g}",
            str(max(result["peak_mb"].values())),
        )
    Console(width=140, highlight=False).print(table)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main()
