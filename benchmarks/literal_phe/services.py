"""The same run by the product: three services over mutual TLS, started by `vfl local`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.literal_phe.reference_run import CONFIG, Floats, ReferenceRun

_AT_MOST_S = 600


@dataclass(frozen=True, slots=True)
class ServicesResult:
    """The sum-form loss of every round, and the seconds of all rounds together."""

    losses: Floats
    training_s: float


def run_services(run: ReferenceRun) -> ServicesResult:
    """Run the job as a user does, and read what it left in report.json."""
    vfl = shutil.which("vfl", path=str(Path(sys.executable).parent))
    if vfl is None:
        raise SystemExit(
            "the command vfl is not beside this Python: run `make demo` or `pip install -e .` first"
        )
    with tempfile.TemporaryDirectory(prefix="vfl-bench-") as folder:
        command = [vfl, "local", "-c", str(CONFIG), "--out", folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_AT_MOST_S, check=False)
        if done.returncode:
            raise SystemExit(f"vfl local ended with exit code {done.returncode}:\n{done.stderr}")
        report = json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))
    losses = np.array(report["loss_history"]) * run.rows
    return ServicesResult(losses, report["seconds"]["by_phase"]["training"])
