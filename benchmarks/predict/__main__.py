"""Measures scores of new rows: `python -m benchmarks.predict [--rows N] [--requests N]`.

Two parties over mutual TLS on this machine. A batch of all rows, and single rows from a standing job; every
score is checked against those of the batch, and those against both parties' model.json, before a time counts.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from common.rpc.pb.active_party_pb2 import JobRecord
from common.runtime.cli.local_parties import LocalParties
from common.runtime.cli.operator import Operator, operating, raise_if_unsuccessful
from common.runtime.cli.scoring import prediction_with
from common.runtime.config.local import load_local

TRAINED = 500
COLUMNS = {"party_a": 10, "party_b": 10}


def main() -> None:
    """Measure, and print a table and one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predict", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000, help="new rows, all of them common")
    parser.add_argument("--requests", type=int, default=1000)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        record = asyncio.run(measured(Path(folder), options.rows, options.requests))
    print(f"batch of {options.rows:,} rows, aligning included: {record['batch_seconds']:.2f} s")
    print(f"first request, aligning kept: {record['first_ms']:.0f} ms")
    for name in ("one", "ten"):
        p50, p99 = record[f"{name}_p50_ms"], record[f"{name}_p99_ms"]
        print(f"requests of {name:<4} p50 {p50:6.2f} ms   p99 {p99:6.2f} ms")
    print(json.dumps({**record, "rows": options.rows, "requests": options.requests, "load_before": load}))


async def measured(folder: Path, rows: int, requests: int) -> dict[str, float]:
    """Train, score a batch, score single rows; return seconds and milliseconds."""
    write(folder, rows)
    (folder / "logs").mkdir()
    parties = LocalParties(load_local(folder / "local.yaml"), folder / "run", folder / "logs")
    async with parties.started() as active, operating(active) as operator:
        trained = await ended(operator, (await operator.submit(parties.config.job)).job_id)
        begin_s = time.perf_counter()
        scored = await ended(operator, (await operator.submit(prediction_with(trained, "new"))).job_id)
        batch_s = time.perf_counter() - begin_s
        (folder / "out").mkdir()
        await operator.fetch(scored.job_id, folder / "out")
        scores = batch_scores(folder / "out" / "predictions.csv")
        check_batch(folder, trained.job_id, scores)
        begin_s = time.perf_counter()
        await operator.score(trained.job_id, "new", [next(iter(scores))])
        record = {"batch_seconds": batch_s, "first_ms": 1e3 * (time.perf_counter() - begin_s)}
        ids = list(scores)
        for name, count in (("one", 1), ("ten", 10)):
            taken = [
                await request(operator, trained.job_id, ids[at * count % rows :][:count], scores)
                for at in range(1, requests + 1)
            ]
            record |= {f"{name}_p{p}_ms": 1e3 * float(np.percentile(taken, p)) for p in (50, 99)}
    return record


async def request(operator: Operator, job: str, ids: list[str], scores: dict[str, float]) -> float:
    """Score a few rows; return the seconds it took."""
    begin_s = time.perf_counter()
    reply = await operator.score(job, "new", ids)
    taken_s = time.perf_counter() - begin_s
    assert [row.score for row in reply.rows] == [scores[one] for one in ids]
    return taken_s


async def ended(operator: Operator, job_id: str) -> JobRecord:
    """Wait for the end of a job that must finish."""
    async for event in operator.watch(job_id):
        if event.HasField("record"):
            raise_if_unsuccessful(event.record)
            return event.record
    return await operator.show(job_id)


def batch_scores(path: Path) -> dict[str, float]:
    """Return id -> score."""
    with path.open(newline="") as file:
        return {row["id"]: float(row["score"]) for row in csv.DictReader(file)}


def check_batch(folder: Path, job_id: str, scores: dict[str, float]) -> None:
    """Compare the scores with what both parts of the model say about the files."""
    total = np.zeros(len(scores))
    for party in COLUMNS:
        model = json.loads((folder / "state" / party / "jobs" / job_id / "model.json").read_text())
        table = np.loadtxt(folder / f"{party}_new.csv", delimiter=",", skiprows=1, usecols=range(1, 11))
        fitted = model["preprocessing"]["columns"]
        scaled = (table - [one["shift"] for one in fitted]) / [one["scale"] for one in fitted]
        total += scaled @ model["coefficients"] + (model["intercept"] or 0.0)
    assert np.abs(total - list(scores.values())).max() < 1e-9


def write(folder: Path, rows: int) -> None:
    """Write the data and the LOCAL.yaml."""
    generator = np.random.default_rng(8)
    for what, count in (("old", TRAINED), ("new", rows)):
        y = np.zeros(count)
        for party, width in COLUMNS.items():
            X = generator.normal(size=(count, width))
            y += X.sum(axis=1)
            names = [f"{party}{at}" for at in range(width)]
            if party == "party_b" and what == "old":
                X, names = np.column_stack([X, y]), [*names, "y"]
            lines = [",".join(["id", *names])]
            lines += [",".join([f"{at:08d}", *map(repr, row)]) for at, row in enumerate(X.tolist())]
            (folder / f"{party}_{what}.csv").write_text("\n".join(lines) + "\n")
    parties = [
        {
            "party": party,
            "role": "passive" if party == "party_a" else "active",
            "state": str(folder / "state" / party),
            "datasets": {
                "old": {"source": {"csv": f"{party}_old.csv"}},
                "new": {"source": {"csv": f"{party}_new.csv"}},
            },
            "policy": {"prediction": {"rows_per_day": 10 * rows + 100_000, "online": True}},
        }
        for party in COLUMNS
    ]
    job = {
        "job": "scored",
        "active": "party_b",
        "passive": ["party_a"],
        "coordinator": "coordinator",
        "data": {"dataset": "old", "label": "y", "test_fraction": 0.0},
        "train": {"solver": "cg", "max_rounds": 20, "tolerance": 1e-9},
        "crypto": {"rounds": "gram"},
    }
    local = {"parties": [{"party": "coordinator", "role": "coordinator"}, *parties], "job": job}
    (folder / "local.yaml").write_text(json.dumps(local))  # JSON is YAML


if __name__ == "__main__":
    main()
