"""Measures entity alignment: `python -m benchmarks.psi [--ids N] [--without-openmined] [--primitives]`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
from pathlib import Path

from benchmarks.psi import openmined
from benchmarks.psi.parties import align
from benchmarks.psi.primitives import measured


def main() -> None:
    """Measure what the options ask for; the last line is one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.psi", description=__doc__)
    parser.add_argument("--ids", type=int, default=100_000, help="ids at each side, half of them common")
    parser.add_argument("--without-openmined", action="store_true")
    parser.add_argument("--primitives", action="store_true", help="microseconds of curves and libraries")
    options = parser.parse_args()
    record: dict[str, object] = {"load_before": os.getloadavg()[0], "cores": os.cpu_count()}
    if options.primitives:
        record["microseconds"] = dict(_printed_primitives())
    else:
        with tempfile.TemporaryDirectory() as folder:
            result = align(Path(folder), options.ids)
        record |= dataclasses.asdict(result)
        print(f"two parties over mutual TLS, {options.ids:,} × {options.ids:,}: {result.seconds:.1f} s")
        print(f"  computing, on all cores together: {result.cpu_seconds:.1f} s")
        for party, peak in result.peak_bytes.items():
            print(f"  {party}: {peak / 1e6:,.0f} MB at most, its workers included")
        if not options.without_openmined:
            beside = openmined.seconds(options.ids)
            record["openmined_seconds"] = beside
            shown = "not installed" if beside is None else "{:.1f} s, computing {:.1f} s".format(*beside)
            print(f"openmined-psi: {shown}")
    record["load_after"] = os.getloadavg()[0]
    print(json.dumps(record))


def _printed_primitives() -> list[tuple[str, float]]:
    found = list(measured())
    for name, microseconds in found:
        print(f"{name:<44}{microseconds:8.1f} µs")
    return found


if __name__ == "__main__":
    main()
