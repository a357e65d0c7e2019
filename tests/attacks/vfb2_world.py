"""Four real services of VFB² on loopback, two of them with labels, each with a tap on its wire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.crypto.secure_sum import Words
from common.rpc import certs
from common.rpc.addresses import free_ports
from common.rpc.pb import vfb2_pb2 as pb
from common.rpc.pb.active_party_pb2 import JOB_FINISHED
from common.runtime.config.party import PartyConfig, load_party
from common.runtime.config.vfb2 import Vfb2Job
from tests.attacks import world as plain
from tests.attacks.world import World

ROWS = 48
COLUMNS = {"party_a": 3, "party_a2": 2, "party_b": 2, "party_b2": 2}
ROLES = {name: "active" if name.startswith("party_b") else "passive" for name in COLUMNS}


class Circle(World):
    """Parties that all dial each other, so that ports are chosen before any of them listens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        certs.issue(self.root, "party_b2")
        ports = free_ports(len(COLUMNS))
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(COLUMNS, ports, strict=True)}

    def config(self, party: str) -> PartyConfig:
        values = {
            "party": party,
            "role": ROLES[party],
            "listen": self.addresses[party],
            "tls": {"ca": "ca.pem", "cert": f"{party}.pem", "key": f"{party}.key"},
            "peers": {peer: self.addresses[peer] for peer in COLUMNS if peer != party} | {"stranger": None},
            "state": f"state/{party}",
            "datasets": {"rows": {"source": {"csv": f"{party}.csv"}}},
            "policy": {"algorithms": ["vfb2"], "min_rows": 1, "min_intersection": 1},
            "compute": {"workers": 0},
        }
        path = self.root / f"{party}.yaml"
        path.write_text(json.dumps(values))
        return load_party(path)


@dataclass(frozen=True)
class Held:
    """What the parties hold: made by the test, which is why it can check what an attack finds."""

    columns: Mapping[str, np.ndarray]
    labels: np.ndarray

    @classmethod
    def drawn(cls, seed: int = 8) -> Held:
        rng = np.random.default_rng(seed)
        columns = {name: rng.normal(size=(ROWS, count)) for name, count in COLUMNS.items()}
        margin = sum(block @ rng.normal(size=block.shape[1]) for block in columns.values())
        return cls(columns, np.where(margin + rng.logistic(size=ROWS) > 0, 1.0, -1.0))

    def write(self, world: World) -> None:
        for name, block in self.columns.items():
            table = {f"{name}{at}": column for at, column in enumerate(block.T)}
            world.write(name, {**table, "y": self.labels} if ROLES[name] == "active" else table)


def job_of(**changes: Any) -> Vfb2Job:
    """Return a job over all rows, unscaled, with some changes."""
    values: dict[str, Any] = {
        "job": "attacked",
        "algorithm": "vfb2",
        "active": ["party_b", "party_b2"],
        "passive": ["party_a", "party_a2"],
        "data": {"dataset": "rows", "label": "y", "test_fraction": 0.0, "standardize": False},
        "train": {"update": "svrg", "batch_size": 4, "epochs": 4, "learning_rate": 0.1, "max_staleness": 4},
    }
    for name, value in changes.items():
        values[name] = {**values[name], **value} if isinstance(value, dict) else value
    return Vfb2Job.model_validate_json(json.dumps(values))


@dataclass(frozen=True)
class Wire:
    """Everything that one party received in a job."""

    held: Held
    received: Mapping[str, list[Any]]  # messages of vfb2.proto, by party, with their sender

    def updates(self, party: str) -> Iterator[pb.ThetaUpdate]:
        """Yield the updates that a party was sent."""
        for _, message in self.received[party]:
            if isinstance(message, pb.FromDominator):
                yield from (word.update for word in message.words if word.HasField("update"))

    def reference(self, party: str, epoch: int) -> np.ndarray:
        """Return the derivatives of all rows at the end of an epoch, as a party was sent them."""
        parts = [
            np.frombuffer(word.reference.thetas, "<f8")
            for _, message in self.received[party]
            if isinstance(message, pb.FromDominator)
            for word in message.words
            if word.HasField("reference") and word.reference.epoch == epoch
        ]
        return np.concatenate(parts)

    def sums(self, party: str) -> Iterator[tuple[str, str, pb.PartialSum]]:
        """Yield sender, root and partial sum of every masked vector that a party was sent."""
        for sender, message in self.received[party]:
            if isinstance(message, pb.ToDominator):
                for word in message.words:
                    if word.HasField("sum"):
                        yield sender, party, word.sum
            elif isinstance(message, pb.PassedSums):
                for passed in message.sums:
                    yield sender, passed.root, passed.sum


def words_of(message: pb.PartialSum) -> Words:
    """Return the words of a partial sum."""
    return np.frombuffer(message.words, "<u8")


def captured(root: Path, job: Vfb2Job) -> Wire:
    """Run a job between real services; return what each party received, as the bytes on the wire."""
    world, held = Circle(root), Held.drawn()
    held.write(world)
    plain.ROLES.setdefault("party_b2", "active")

    async def run() -> None:
        async with world.running(*job.passive, *job.also_active, job.active):
            record = await world.train(job)
            assert record.status == JOB_FINISHED, record.error.what

    asyncio.run(run())
    kinds = {kind.DESCRIPTOR.full_name: kind for kind in (pb.FromDominator, pb.ToDominator, pb.PassedSums)}
    received = {
        party: [
            (passage.peer, kinds[passage.message_type].FromString(passage.wire))
            for passage in seen
            if passage.direction == "received" and passage.message_type in kinds
        ]
        for party, seen in world.wire.items()
    }
    return Wire(held, received)
