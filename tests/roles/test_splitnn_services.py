"""A split network between services: the same as in one process, and what each side refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.data.split import split_rows
from common.nets.batches import epoch_batches
from common.nets.field_stream import learn
from common.nets.pooled import Half as PooledHalf
from common.nets.pooled import PooledNetwork, train_pooled
from common.rpc.pb.active_party_pb2 import JOB_FINISHED
from common.runtime.config.networks import NetJob
from common.runtime.epoch_store import party_secret
from common.runtime.net_design import encoded, field_settings, net_rows, parts_of
from common.runtime.net_halves import Half
from tests.attacks.world import World

ROWS = 400
POLICY = {"algorithms": ["splitnn", "jpl", "fpd"], "min_rows": 1, "min_intersection": 1}


def net_job(**sections: Any) -> NetJob:
    """Return a small job with a split network over the data set `rows`."""
    values: dict[str, Any] = {
        "job": "split",
        "algorithm": "splitnn",
        "active": "party_b",
        "passive": ["party_a"],
        "data": {"dataset": "rows", "label": "y", "split_seed": 3, "validation_fraction": 0.0},
        "model": {"embedding_dim": 4, "bottom": [8, 4], "top": [4], "bins": 8},
        "train": {"batch_size": 32, "epochs": 1, "pipeline": False, "seed": 5},
    }
    for name, section in sections.items():
        old = values.get(name)
        values[name] = {**old, **section} if isinstance(old, dict) else section
    return NetJob.model_validate_json(json.dumps(values))


def write_rows(world: World, passive: tuple[str, ...] = ("party_a",)) -> None:
    """Write tables whose label depends on columns of every party."""
    rng = np.random.default_rng(4)
    blocks = {party: rng.normal(size=(ROWS, 3)) for party in (*passive, "party_b")}
    scores = sum(block[:, 0] - block[:, 1] ** 2 for block in blocks.values())
    labels = (scores + rng.normal(size=ROWS) > np.median(scores)).astype(float)
    for party, block in blocks.items():
        columns = {f"{party}{at}": column for at, column in enumerate(block.T)}
        world.write(party, {**columns, "y": labels} if party == "party_b" else columns)


def pooled_scores(world: World, job: NetJob) -> np.ndarray:
    """Train the job's network in this process, from the parties' own files and secrets; score all rows."""
    run, halves, labels = job.runs[0], {}, np.zeros(0)
    for party in (*job.passive, job.active):
        own = world.config(party)
        rows = net_rows(own, job)
        order = np.array([rows.head.ids.index(one) for one in aligned_ids(world, job)])
        if party == job.active:
            labels = rows.head.column("y")[order]
        parts = parts_of(ROWS, job.data, run)
        training, _ = split_rows(ROWS, job.data.test_fraction, job.data.split_seed)
        plan = learn(rows, order[training], field_settings(own, job))
        design = encoded(rows, order, plan, own.state / "pooled")
        half = Half(job, run, design, party_secret(own.state))
        halves[party] = PooledHalf(design.rows, design.plan.layout, half.settings(len(parts.fit)))
    network = PooledNetwork(halves.pop(job.active), halves, labels)
    for epoch in range(1, job.train.epochs + 1):
        batches = epoch_batches(len(parts.fit), job.train.batch_size, run.seed, epoch)
        train_pooled(network, (parts.fit[batch] for batch in batches))
    return network.logits(parts.test)


def aligned_ids(world: World, job: NetJob) -> list[str]:
    """Return the common ids in the order that alignment gave them."""
    from common.runtime.alignment_cache import AlignmentCache
    from common.runtime.linear_design import alignment_key

    own = world.config(job.active)
    ids = net_rows(own, job).head.ids
    kept = AlignmentCache(own.state).find(alignment_key(own, job, ids))
    assert kept is not None
    return [ids[row] for row in kept.rows]


@pytest.mark.parametrize("passive", [("party_a",), ("party_a", "party_a2")])
async def test_an_epoch_between_services_is_the_epoch_in_one_process(
    tmp_path: Path, passive: tuple[str, ...]
) -> None:
    world = World(tmp_path / "world", policy=POLICY)
    write_rows(world, passive)
    job = net_job(passive=list(passive))
    async with world.running(*passive, "party_b"):
        record = await world.train(job)  # type: ignore[arg-type]
        assert record.status == JOB_FINISHED, record.error
    text = (world.config("party_b").state / "jobs" / record.job_id / "predictions_test.csv").read_text()
    sent = {line.split(",")[0]: float(line.split(",")[3]) for line in text.splitlines()[1:]}
    ids = aligned_ids(world, job)
    parts = parts_of(ROWS, job.data, job.runs[0])
    found = np.array([sent[ids[row]] for row in parts.test])
    assert np.abs(found - pooled_scores(world, job)).max() < 1e-5


async def test_without_test_rows_the_lift_speaks_of_training_rows(tmp_path: Path) -> None:
    world = World(tmp_path / "world", policy=POLICY)
    write_rows(world)
    job = net_job(algorithm="jpl", data={"test_fraction": 0.0, "validation_fraction": 0.2})
    async with world.running("party_a", "party_b"):
        record = await world.train(job)  # type: ignore[arg-type]
        assert record.status == JOB_FINISHED, record.error
    folder = world.config("party_b").state / "jobs" / record.job_id
    report = json.loads((folder / "report.json").read_text())
    assert report["metrics"]["test"] is None
    # Every common row is one that both models were trained on here.
    assert report["lift"]["federated"]["train"] == pytest.approx(report["metrics"]["train"])
    assert report["lift"]["local"]["train"].keys() == report["metrics"]["train"].keys()
    assert report["lift"]["local"] != report["lift"]["federated"]
    assert (folder / "predictions_test.csv").read_text() == "id,partition,y,score,probability\n"
