"""Measures split networks: `python -m benchmarks.splitnn [--passive N] [--rows N] [--batch N] [--epochs N]`.

Three services over mutual TLS on this machine, B and two passive parties (`--passive 1`: one), with and
without pipelining, and the same network in one process, in turns in one run: the fastest of each counts, and
what tells is the ratio. AUC of test rows must agree before a time counts.
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

from common.data.split import split_rows
from common.glm.metrics import classification_metrics
from common.nets.batches import epoch_batches
from common.nets.field_stream import learn
from common.nets.pooled import Half, PooledNetwork, train_pooled
from common.nets.shape import NetSettings
from common.nets.threads import use_threads
from common.runtime.cli.local_parties import LocalParties
from common.runtime.cli.operator import Operator, operating, raise_if_unsuccessful
from common.runtime.config.local import LocalParty, load_local
from common.runtime.config.networks import NetJob
from common.runtime.config.party import PartyConfig
from common.runtime.net_design import encoded, net_rows, optimisation_of, parts_of, shape_of

ACTIVE = "party_b"
PASSIVE = ("party_a", "party_a2")
FIELDS = {ACTIVE: 20, **dict.fromkeys(PASSIVE, 10)}
CATEGORIES = 1000
# AUC of test rows may differ by so much between a pipelined training and the one in one process.
AGREE = 0.03


def main() -> None:
    """Measure, and print a table and one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.splitnn", description=__doc__)
    parser.add_argument("--passive", type=int, choices=(1, 2), default=2)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        labels = write(folder, options)
        rounds = [measured(folder / str(at), folder, labels, options) for at in range(options.repeats)]
    aucs = [auc for one in rounds for _, auc in one.values()]
    if max(aucs) - min(aucs) > AGREE:
        raise SystemExit(
            f"AUC {min(aucs):.3f} to {max(aucs):.3f}: the trainings do not agree, nothing is timed"
        )
    lines = {name: max(one[name][0] for one in rounds) for name in rounds[0]}
    best = max(rate for name, rate in lines.items() if name.startswith("one process"))
    for line, rate in lines.items():
        print(f"{line:<24} {rate:10,.0f} rows a second   {100 * rate / best:5.0f} %")
    print(json.dumps({"rates": lines, "aucs": aucs, "load_before": load, **vars(options)}))


def measured(
    work: Path, data: Path, labels: np.ndarray, options: argparse.Namespace
) -> dict[str, tuple[float, float]]:
    """Train in every way once; return rows a second and the AUC of the test rows, by name."""
    found = {"one process, 1 thread": in_one_process(data, labels, options, 1)}
    for kind in ("pipelined", "in step"):
        found[f"services, {kind}"] = asyncio.run(between_services(work / kind, data, kind, options))
    found["one process, 2 threads"] = in_one_process(data, labels, options, 2)
    return found


def write(folder: Path, options: argparse.Namespace) -> np.ndarray:
    """Write the parties' tables, all ids common, in one order; return the labels."""
    rng, rows = np.random.default_rng(3), options.rows
    score = rng.normal(size=rows)
    tables = {}
    for party in (*PASSIVE[: options.passive], ACTIVE):
        fields = FIELDS[party]
        codes = (rng.pareto(1.2, size=(rows, fields)) * 10).astype(int) % CATEGORIES
        score = score + 0.7 * rng.normal(size=CATEGORIES)[codes].sum(axis=1) / np.sqrt(fields) * 2
        tables[party] = codes
    labels = (score > np.quantile(score, 0.7)).astype(int)
    for party, codes in tables.items():
        with (folder / f"{party}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            own = ["y"] if party == ACTIVE else []
            writer.writerow(["id", *(f"{party}{at}" for at in range(codes.shape[1])), *own])
            for row in range(rows):
                cells = [f"c{code}" for code in codes[row]]
                writer.writerow([f"u{row}", *cells, *([str(labels[row])] if own else [])])
    return labels


def settings(folder: Path, kind: str, options: argparse.Namespace) -> Path:
    """Write the LOCAL.yaml of a job; return its path."""
    passive = PASSIVE[: options.passive]
    parties = [
        {
            "party": party,
            "role": role,
            "state": str(folder / f"state-{party}"),
            "datasets": {"rows": {"source": {"csv": str(folder / f"{party}.csv")}, "types": "categorical"}},
            "policy": {"algorithms": ["splitnn"]},
        }
        for party, role in (*((one, "passive") for one in passive), (ACTIVE, "active"))
    ]
    job = {
        "job": "benchmark",
        "algorithm": "splitnn",
        "active": ACTIVE,
        "passive": list(passive),
        "data": {"dataset": "rows", "label": "y", "test_fraction": 0.1, "validation_fraction": 0.0},
        "train": {
            "batch_size": options.batch,
            # One more, in which torch is imported and everything is warmed up.
            "epochs": options.epochs + 1,
            "pipeline": kind == "pipelined",
        },
    }
    path = folder / "local.yaml"
    path.write_text(json.dumps({"parties": parties, "job": job}))  # JSON is YAML
    return path


async def between_services(
    folder: Path, data: Path, kind: str, options: argparse.Namespace
) -> tuple[float, float]:
    """Train between processes; return rows a second and the AUC of the test rows."""
    config = load_local(settings(data, kind, options))
    for name in ("run", "logs", "out"):
        (folder / name).mkdir(parents=True)
    parties = LocalParties(config, folder / "run", folder / "logs")
    async with parties.started() as active, operating(active) as operator:
        submitted = await operator.submit(config.job)
        seconds, job_id = await epochs_of(operator, submitted.job_id)
        await operator.fetch(job_id, folder / "out")
    report = json.loads((folder / "out" / "report.json").read_text())
    trained = report["rows"]["train"] * options.epochs
    return trained / (seconds[options.epochs + 1] - seconds[1]), report["metrics"]["test"]["auc"]


async def epochs_of(operator: Operator, job_id: str) -> tuple[dict[int, float], str]:
    """Watch a job to its end; return by the service's clock when each epoch was over."""
    seconds: dict[int, float] = {}
    async for event in operator.watch(job_id):
        if event.phase == "training" and event.round:
            seconds.setdefault(event.round, event.elapsed_s)
    raise_if_unsuccessful(await operator.show(job_id))
    return seconds, job_id


def in_one_process(
    folder: Path, labels: np.ndarray, options: argparse.Namespace, threads: int
) -> tuple[float, float]:
    """Train the same network in this process; return rows a second and the AUC of the test rows."""
    config = load_local(settings(folder, "pipelined", options))
    job = config.job
    if not isinstance(job, NetJob):
        raise SystemExit("the benchmark trains networks")
    use_threads(threads)
    run = job.runs[0]
    parts = parts_of(options.rows, job.data, run)
    training, _ = split_rows(options.rows, job.data.test_fraction, run.split_seed)
    halves = {}
    for party in config.parties:
        own = party_config(party, folder)
        rows = net_rows(own, job)
        plan = learn(rows, training, own.datasets["rows"].field_settings("quantile", 32, 16_384))
        design = encoded(rows, np.arange(options.rows), plan, folder / party.party)
        chosen = NetSettings(shape_of(job), optimisation_of(job, len(parts.fit)), seed=len(party.party))
        halves[party.party] = Half(design.rows, design.plan.layout, chosen)
    network = PooledNetwork(halves.pop(ACTIVE), halves, labels.astype(float))
    for epoch in range(1, options.epochs + 2):
        if epoch == 2:
            began_s = time.perf_counter()
        batches = epoch_batches(len(parts.fit), options.batch, run.seed, epoch)
        train_pooled(network, (parts.fit[batch] for batch in batches))
    rate = len(parts.fit) * options.epochs / (time.perf_counter() - began_s)
    scores = network.logits(parts.test)
    return rate, classification_metrics(labels[parts.test], scores, 1 / (1 + np.exp(-scores)))["auc"]


def party_config(party: LocalParty, folder: Path) -> PartyConfig:
    """Return a party of a LOCAL.yaml as a party file, which nobody dials."""
    values = party.model_dump(mode="json", exclude={"state"}, exclude_unset=True)
    fixed = {"listen": "127.0.0.1:0", "insecure": True, "peers": {}, "state": str(folder / "unused")}
    return PartyConfig.model_validate_json(json.dumps({**values, **fixed, "compute": {"workers": 0}}))


if __name__ == "__main__":
    main()
