"""A reads labels from the gradients on its own wire, and what each protection leaves of that."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.nets.attacks import direction_scores, leak_auc, norm_attack
from common.nets.batches import epoch_batches
from common.rpc.pb import splitnn_pb2 as net
from common.rpc.pb.active_party_pb2 import JOB_FINISHED
from common.rpc.wiretap import Passage
from common.runtime.config.networks import NetJob
from common.runtime.epoch_store import SECRET_FILE
from common.runtime.net_design import parts_of
from common.runtime.state import make_folder, write_once
from tests.attacks.world import World
from tests.roles.test_splitnn_services import POLICY, aligned_ids, net_job

ROWS, WIDTH = 480, 8
# Wide enough that first weights do not decide whether a gradient comes through at all.
MODEL = {"bottom": [16, WIDTH], "top": [32]}
TRAIN = {"batch_size": 40, "epochs": 3, "patience": None, "learning_rate": 0.01, "seed": 5}


def write_rows(world: World) -> np.ndarray:
    """Write tables of whose rows one in five is positive; return the labels in file order."""
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=(ROWS, 3)), rng.normal(size=(ROWS, 3))
    score = a[:, 0] + b[:, 0] + rng.normal(size=ROWS)
    labels = (score > np.quantile(score, 0.8)).astype(float)
    world.write("party_a", {f"a{at}": column for at, column in enumerate(a.T)})
    world.write("party_b", {**{f"b{at}": column for at, column in enumerate(b.T)}, "y": labels})
    return labels


def keep_secrets(world: World) -> None:
    """Give both parties a secret made before, so that first weights and noise are the same in every run."""
    for party in ("party_a", "party_b"):
        state = world.config(party).state
        make_folder(state)
        write_once(state / SECRET_FILE, hashlib.sha256(party.encode()).digest())


async def captured(tmp_path: Path, wire: str = "float32", **privacy: Any) -> tuple[World, NetJob, np.ndarray]:
    """Run a job with A's and B's wires tapped; return what is needed to attack it."""
    make_folder(tmp_path)
    world = World(tmp_path / "world", policy=POLICY)
    labels = write_rows(world)
    keep_secrets(world)
    # Without validation rows nothing is trained at B alone, which this test does not look at.
    train = {**TRAIN, "wire": wire}
    job = net_job(model=MODEL, train=train, privacy=privacy, data={"validation_fraction": 0.0})
    async with world.running("party_a", "party_b"):
        record = await world.train(job)  # type: ignore[arg-type]
        assert record.status == JOB_FINISHED, record.error
    ids = aligned_ids(world, job)
    return world, job, labels[[int(one[1:]) for one in ids]]


def gradients(wire: list[Passage], job: NetJob) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (positions among the common rows, gradients) of every batch that A received."""
    parts = parts_of(ROWS, job.data, job.runs[0])
    found = []
    for passage in wire:
        if passage.direction != "received" or passage.message_type != "vfl.v1.EpochTurn":
            continue
        message = net.EpochTurn.FromString(passage.wire)
        if message.gradient:
            batches = epoch_batches(len(parts.fit), job.train.batch_size, job.train.seed, message.turn.round)
            rows = parts.fit[list(batches)[message.batch]]
            values = np.frombuffer(message.gradient, "<f4").reshape(len(rows), WIDTH)
            found.append((rows, values))
    return found


def attacked(seen: list[tuple[np.ndarray, np.ndarray]], labels: np.ndarray) -> tuple[float, float]:
    """Return the AUC of the norm and of the direction attack, meaned over batches."""
    norms, directions = [], []
    for rows, values in seen:
        true = labels[rows]
        if 0 < true.sum() < len(true):
            known = np.flatnonzero(true == 1)[:1]
            others = np.delete(np.arange(len(true)), known)
            norms.append(norm_attack(values, true))
            directions.append(leak_auc(true[others], direction_scores(values, values[known])[others]))
    return float(np.nanmean(norms)), float(np.nanmean(directions))


async def test_without_protection_the_gradients_on_a_s_wire_are_the_labels(tmp_path: Path) -> None:
    world, job, labels = await captured(tmp_path)
    norm, direction = attacked(gradients(world.wire["party_a"], job), labels)
    assert norm > 0.85
    assert direction > 0.99


@pytest.mark.parametrize(
    ("privacy", "norm_below", "direction_below"),
    [
        # Noise along the gradient hides its length; its line through the origin stays.
        ({"protect": "max_norm"}, 0.7, 0.9),
        ({"protect": "marvell", "power": 8.0}, 0.75, 0.75),
        # A label that was flipped with probability 1/(1+e^ε) cannot be told better than that.
        ({"protect": "label_dp", "epsilon": 0.5}, 0.75, 0.75),
    ],
    ids=["max_norm", "marvell", "label_dp"],
)
async def test_each_protection_takes_the_labels_off_the_wire(
    tmp_path: Path, privacy: dict[str, Any], norm_below: float, direction_below: float
) -> None:
    world, job, labels = await captured(tmp_path, **privacy)
    norm, direction = attacked(gradients(world.wire["party_a"], job), labels)
    assert norm < norm_below
    assert direction < direction_below


def representations(wire: list[Passage], kind: str = "<f4") -> np.ndarray:
    """Return all representations that A sent, in their order, (r, WIDTH)."""
    sent = (one for one in wire if (one.direction, one.message_type) == ("sent", "vfl.v1.Representations"))
    values = b"".join(net.Representations.FromString(one.wire).values for one in sent)
    return np.frombuffer(values, kind).reshape(-1, WIDTH).astype(np.float64)


async def test_representations_on_the_wire_are_as_short_and_as_blurred_as_the_job_asks(
    tmp_path: Path,
) -> None:
    """The same secrets and seeds: until the first gradient comes, noise alone tells the two runs apart."""
    clipped, _, _ = await captured(tmp_path / "clipped", clip=0.5)
    exact = representations(clipped.wire["party_a"])
    lengths = np.linalg.norm(exact, axis=1)
    assert lengths.max() < 0.5 + 1e-5
    assert np.mean(lengths > 0.5 - 1e-5) > 0.1  # it is the rule that makes them so short

    blurred, _, _ = await captured(tmp_path / "blurred", clip=0.5, noise=1.0)
    noise = (representations(blurred.wire["party_a"]) - exact)[: TRAIN["batch_size"]]
    assert 0.4 < noise.std() < 0.6
    assert abs(np.corrcoef(noise[:, 0], noise[:, 1])[0, 1]) < 0.6


async def test_nothing_row_by_row_crosses_but_gradients_one_way_and_representations_the_other(
    tmp_path: Path,
) -> None:
    world, job, _ = await captured(tmp_path)
    to_a = {one.message_type for one in world.wire["party_a"] if one.direction == "received"}
    from_a = {one.message_type for one in world.wire["party_a"] if one.direction == "sent"}
    control = {"Attendance", "CloseJobRequest", "OpenJobRequest", "DescribeIdsRequest"}
    alignment = {"BlindOwnIdsRequest", "BlindedIds", "CommonPositions", "CommonRows"}
    split = {"BuildNetworkRequest", "EpochTurn", "RepresentationsRequest"}
    assert {one.rpartition(".")[2] for one in to_a} <= control | alignment | split | {"Greeting"}
    answers = {"OpenJobReply", "Presence", "CloseJobReply", "CommonRowsSet", "IdProfile"}
    allowed = answers | {"BlindedIds", "CommonPositions", "NetworkBuilt", "Representations", "Greeting"}
    assert {one.rpartition(".")[2] for one in from_a} <= allowed
    # As many rows of numbers as the protocol says, and not one more.
    parts = parts_of(ROWS, job.data, job.runs[0])
    received = sum(len(values) for _, values in gradients(world.wire["party_a"], job))
    assert received == TRAIN["epochs"] * len(parts.fit)
    trained = TRAIN["epochs"] * (len(parts.fit) + len(parts.validation))
    sent = representations(world.wire["party_a"])
    assert len(sent) == trained + len(parts.training) + len(parts.test)


async def test_half_precision_crosses_as_such_and_the_report_says_what_it_lost(tmp_path: Path) -> None:
    world, _, _ = await captured(tmp_path, wire="float16", clip=0.5)
    norms = np.linalg.norm(representations(world.wire["party_a"], "<f2"), axis=1)
    assert norms.max() == pytest.approx(0.5, rel=1e-3)
    reports = list((world.config("party_b").state / "jobs").glob("*/report.json"))
    rounding = json.loads(reports[0].read_text())["networks"]["rounding"]
    # Eleven bits: at most 2^-11 of a number, and on average some 0.29 of the last bit.
    assert 2e-5 < rounding["representations"] < 2**-11
    assert 2e-5 < rounding["gradients"] < 2**-11
