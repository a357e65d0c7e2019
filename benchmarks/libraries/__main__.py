"""`python -m benchmarks.libraries`: this library, phe, and the fastest Paillier libraries that install here.

Each is installed in an environment of its own, thrown away afterwards, and runs alone. Times are CPU
microseconds of one core, and every result is checked before it is timed (measure.py). The last lines compare
X'[[d]] with its limit: the products it needs, times what a product takes on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.libraries.measure import EXPONENT_BITS
from common.crypto.multiexp import best_window, element_cost
from common.runtime.calibration import measure

# Only for measuring. HEU: 0.5 is the last one for Python 3.11. phe without gmpy2 would be nine times slower.
REQUIREMENTS = {
    "phe": ["phe==1.5.0", "gmpy2"],
    "heu": ["sf-heu==0.5.2b0"],
    "pypaillier": ["pypaillier==0.8.0"],
    "rust_paillier": ["rust-paillier==0.1.0", "numpy"],
}
# How our own rows of the table are called.
OURS = {"colonnade": "colonnade, {rows:,} rows", "colonnade_short": "colonnade, short noise"}
OPERATIONS = {"encrypt": "encrypt", "rerandomise": "re-randomise", "decrypt": "decrypt", "kernel": "X'[[d]]"}
_MEASURE = Path(__file__).with_name("measure.py")
_AT_MOST_S = 3600


def main() -> None:
    """Measure every library, print a table and a line of JSON for each."""
    parser = argparse.ArgumentParser(description="Single operations of Paillier libraries, side by side.")
    parser.add_argument("--bits", type=int, default=2048, help="length of the key")
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[1000, 10_000], help="of our X'[[d]], 10 columns"
    )
    parser.add_argument("--repeats", type=int, default=3, help="the fastest counts")
    parser.add_argument("--only-phe", action="store_true", help="install nothing")
    options = parser.parse_args()
    results = []
    for rows in options.rows:
        numbers = (options.bits, rows, 10, options.repeats)
        results.append(_measured("colonnade", Path(sys.executable), numbers))
    numbers = (options.bits, options.rows[0], 10, options.repeats)
    results.append(_measured("colonnade_short", Path(sys.executable), numbers))
    # One exponentiation an element, whatever the rows: few of them tell the time.
    numbers = (options.bits, 100, 10, options.repeats)
    results.append(_measured("phe", Path(sys.executable), numbers))
    if not options.only_phe:
        with tempfile.TemporaryDirectory(prefix="vfl-libraries-") as folder:
            for name, packages in REQUIREMENTS.items():
                if name != "phe":
                    results.append(_measured_apart(name, packages, Path(folder) / name, numbers))
    results = [one for one in results if one is not None]
    for one in results:
        print(json.dumps({"benchmark": "libraries", "load": round(os.getloadavg()[0], 1), **one}))
    _print(results, options.bits)
    _print_limit(results, options.bits)


def _measured_apart(
    name: str, packages: list[str], folder: Path, numbers: tuple[int, ...]
) -> dict[str, Any] | None:
    """Install a library in an environment of its own and measure it there; None if it does not install."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    installed = subprocess.run(
        [python, "-m", "pip", "install", "-q", *packages], capture_output=True, text=True, check=False
    )
    if installed.returncode:
        print(f"{name} does not install here: {installed.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return _measured(name, python, numbers)


def _measured(name: str, python: Path, numbers: tuple[int, ...]) -> dict[str, Any] | None:
    command = [python, str(_MEASURE), name, *map(str, numbers)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_AT_MOST_S, env=environment, check=False
    )
    if done.returncode:
        print(f"{name} was not measured: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _print(results: list[dict[str, Any]], bits: int) -> None:
    reference = next(one["us"] for one in results if one["library"] == "phe")
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("library", no_wrap=True)
    for title in OPERATIONS.values():
        table.add_column(f"{title} µs", justify="right", no_wrap=True)
        table.add_column("× phe", justify="right", no_wrap=True)
    for one in results:
        cells = []
        for operation in OPERATIONS:
            us = one["us"].get(operation)
            cells += ["–", "–"] if us is None else [f"{us:,.4g}", f"{reference[operation] / us:.1f}"]
        table.add_row(OURS.get(one["library"], one["library"]).format(**one), *cells)
    console = Console(width=140, highlight=False, markup=False)
    console.print(
        f"{bits}-bit key, one core; X'[[d]] an element, exponents of {EXPONENT_BITS} bits, 10 columns"
    )
    console.print(table)


def _print_limit(results: list[dict[str, Any]], bits: int) -> None:
    product_us = measure(bits).product_s * 1e6
    print(f"a product modulo N² takes {product_us:.2f} µs here")
    for one in results:
        if one["library"] == "colonnade":
            rows, window = one["rows"], best_window(one["rows"], EXPONENT_BITS)
            needed = element_cost(rows, one["columns"], EXPONENT_BITS)
            print(
                f"{rows:,} rows: windows of {window} bits need products worth {needed:.2f} full ones an "
                f"element, {needed * product_us:.1f} µs; measured {one['us']['kernel']:.1f} µs, "
                f"{one['us']['kernel'] / (needed * product_us):.2f} times the limit"
            )


if __name__ == "__main__":
    main()
