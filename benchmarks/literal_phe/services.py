"""The same run by the product: three services over mutual TLS, started by `vfl local`."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from benchmarks.literal_phe.reference_run import CONFIG, Floats, ReferenceRun

Kind = Literal["rowwise", "rowwise_short", "gram"]

_AT_MOST_S = 600
# A short and a long run: their difference is rounds alone, without tables, set-up and starting.
_ROUNDS: Mapping[Kind, tuple[int, int]] = {"rowwise": (5, 25), "rowwise_short": (5, 25), "gram": (10, 110)}
_CRYPTO: Mapping[Kind, Mapping[str, str]] = {
    "rowwise": {"rounds": "rowwise"},
    "rowwise_short": {"rounds": "rowwise", "noise": "short"},
    "gram": {"rounds": "gram"},
}


@dataclass(frozen=True, slots=True)
class ServicesResult:
    """What a run of the services gave.

    Attributes:
        losses: Sum-form loss of every round.
        pooled: What pooled data give on the same training rows: which ones depends on the alignment.
        round_s: Seconds of one round.
        once_s: Seconds of training that are spent once: tables of noise, and the set-up of Gram rounds.
    """

    losses: Floats
    pooled: Floats
    round_s: float
    once_s: float


def run_services(run: ReferenceRun, kind: Kind) -> ServicesResult:
    """Run the published job on rounds of a kind, short and long."""
    few, many = _ROUNDS[kind]
    *_, short_s = _trained(run, kind, few)
    losses, pooled, long_s = _trained(run, kind, many)
    round_s = (long_s - short_s) / (many - few)
    return ServicesResult(losses, pooled, round_s, long_s - many * round_s)


def _trained(run: ReferenceRun, kind: Kind, rounds: int) -> tuple[Floats, Floats, float]:
    """Run the job as a user does, and read what it left in report.json."""
    vfl = shutil.which("vfl", path=str(Path(sys.executable).parent))
    if vfl is None:
        raise SystemExit(
            "the command vfl is not beside this Python: run `make demo` or `pip install -e .` first"
        )
    with tempfile.TemporaryDirectory(prefix="vfl-bench-") as name:
        folder = Path(name)
        config = _written(folder, kind, rounds)
        command = [vfl, "local", "-c", str(config), "--out", str(folder / "out")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_AT_MOST_S, check=False)
        if done.returncode:
            raise SystemExit(f"vfl local ended with exit code {done.returncode}:\n{done.stderr}")
        report = json.loads((folder / "out" / "report.json").read_text(encoding="utf-8"))
        tested = _ids(folder / "out" / "predictions_test.csv")
    losses = np.array(report["loss_history"]) * run.rows
    return losses, run.without(tested).pooled_losses(rounds), report["seconds"]["by_phase"]["training"]


def _ids(path: Path) -> set[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return {row["id"] for row in csv.DictReader(file)}


def _written(folder: Path, kind: Kind, rounds: int) -> Path:
    """Write the reference run's file with another kind and number of rounds."""
    settings: dict[str, Any] = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    settings["job"]["crypto"] |= _CRYPTO[kind]
    settings["job"]["train"] |= {"max_rounds": rounds, "learning_rate": 1.0e-2}
    for party in settings["parties"]:
        party["policy"] = party.get("policy", {}) | {"noise": ["proven", "short"]}
        for dataset in party.get("datasets", {}).values():
            dataset["source"]["csv"] = str((CONFIG.parent / dataset["source"]["csv"]).resolve())
    path = folder / "local.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path
