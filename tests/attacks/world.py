"""Real services on loopback with mutual TLS, each with a tap on its wire, and stubs to dial them by hand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.rpc import certs
from common.rpc.channels import open_channel
from common.rpc.greeting import make_greeting
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb.active_party_pb2 import JobRecord, JobReference, SubmitJobRequest
from common.rpc.pb.active_party_pb2_grpc import ActivePartyStub
from common.rpc.pb.coordinator_pb2_grpc import CoordinatorStub
from common.rpc.pb.passive_party_pb2_grpc import PassivePartyStub
from common.rpc.tls import Security, TlsFiles
from common.rpc.wiretap import Passage, Wiretap
from common.runtime.compute import InProcessExecutor
from common.runtime.config.errors import UNSAFE_TEST_KEYS
from common.runtime.config.job import JobConfig
from common.runtime.config.party import PartyConfig, load_party
from coordinator.service import CoordinatorService
from party_a.service import PassiveService
from party_b.service import ActiveService

PARTIES = ("coordinator", "party_a", "party_a2", "party_b", "stranger")
SERVICES = {"coordinator": CoordinatorService, "passive": PassiveService, "active": ActiveService}
STUBS = {"coordinator": CoordinatorStub, "passive": PassivePartyStub, "active": ActivePartyStub}
ROLES = {"coordinator": "coordinator", "party_a": "passive", "party_a2": "passive", "party_b": "active"}
CALL_S = 20.0
KEY_BITS = 256
POLICY = {"min_key_bits": KEY_BITS, "min_rows": 1, "min_intersection": 1}


@dataclass
class World:
    """Where everything of one test lives.

    Attributes:
        root: Directory of certificates, data and state.
        policy: Of every party that has none of its own in `policies`.
        addresses: Of the parties that run.
        wire: What each running party sent and received, in order.
        executor: Where every party computes; by default in this process, without noise made in advance.
    """

    root: Path
    policy: Mapping[str, Any] = field(default_factory=lambda: {**POLICY})
    policies: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    addresses: dict[str, str | None] = field(default_factory=dict)
    wire: dict[str, list[Passage]] = field(default_factory=dict)
    executor: Executor = field(default_factory=InProcessExecutor)

    def __post_init__(self) -> None:
        self.root.mkdir(exist_ok=True)
        certs.create_ca(self.root, "a CA for attacks")
        for party in PARTIES:
            certs.issue(self.root, party)

    def write(self, party: str, columns: Mapping[str, Sequence[float]]) -> None:
        """Write a party's table; ids are the row numbers, so the common order is that of the file."""
        names = ["id", *columns]
        rows = zip(*columns.values(), strict=True)
        lines = [
            ",".join([f"r{at:04d}", *(repr(float(cell)) for cell in row)]) for at, row in enumerate(rows)
        ]
        (self.root / f"{party}.csv").write_text("\n".join([",".join(names), *lines]) + "\n")

    def config(self, party: str) -> PartyConfig:
        """Return a party's configuration, with the addresses of those that run already."""
        has_rows = (self.root / f"{party}.csv").exists()
        values = {
            "party": party,
            "role": ROLES[party],
            "listen": "127.0.0.1:0",
            "tls": {"ca": "ca.pem", "cert": f"{party}.pem", "key": f"{party}.key"},
            "peers": {peer: self.addresses.get(peer) for peer in PARTIES if peer != party},
            "state": f"state/{party}",
            "datasets": {"rows": {"source": {"csv": f"{party}.csv"}}} if has_rows else {},
            "policy": {**self.policies.get(party, self.policy)},
            "compute": {"workers": 0},
        }
        path = self.root / f"{party}.yaml"
        path.write_text(json.dumps(values))  # JSON is YAML
        return load_party(path)

    @contextlib.asynccontextmanager
    async def running(self, *parties: str) -> AsyncIterator[World]:
        """Start these parties' services, in this order, and stop them in the end."""
        services = []
        try:
            for party in parties:
                seen = self.wire.setdefault(party, [])
                service = SERVICES[ROLES[party]](self.config(party), self.executor, [seen.append])
                self.addresses[party] = await service.start()
                services.append(service)
            yield self
        finally:
            for service in reversed(services):
                await service.stop(0)

    @contextlib.asynccontextmanager
    async def dialled(self, party: str, caller: str) -> AsyncIterator[Any]:
        """Yield a stub of a running party on a connection that shows the caller's certificate."""
        files = TlsFiles(self.root / "ca.pem", self.root / f"{caller}.pem", self.root / f"{caller}.key")
        address = self.addresses[party]
        assert address is not None
        async with open_channel(party, address, caller, Security(files), Wiretap()) as channel:
            yield STUBS[ROLES[party]](channel)

    async def train(self, job: JobConfig) -> JobRecord:
        """Submit a job to party_b as its operator does; return its last record."""
        async with self.dialled("party_b", "party_b") as stub:
            record = await stub.SubmitJob(SubmitJobRequest(job_json=job.canonical_json()), timeout=CALL_S)
            async with asyncio.timeout(60):
                async for event in stub.WatchJob(JobReference(job=record.job_id), timeout=60):
                    if event.HasField("record"):
                        record = event.record
        return record


def job_of(**sections: Any) -> JobConfig:
    """Return a job over the data set `rows`, unscaled and without test rows, except for what is given."""
    values: dict[str, Any] = {
        "job": "attacked",
        "active": "party_b",
        "passive": ["party_a"],
        "coordinator": "coordinator",
        "data": {"dataset": "rows", "label": "y", "test_fraction": 0.0, "standardize": False},
        "train": {"learning_rate": 0.1, "max_rounds": 3},
        "crypto": {"key_bits": KEY_BITS},
    }
    for name, section in sections.items():
        old = values.get(name)
        values[name] = {**old, **section} if isinstance(old, dict) else section
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(UNSAFE_TEST_KEYS, "1")
        return JobConfig.model_validate_json(json.dumps(values))


def turn_of(job: JobConfig, number: int = 0, job_id: str = "attacked-1", attempt: int = 0) -> pb.Turn:
    """Return a round's turn of a job that the test opens by hand."""
    return pb.Turn(job_id=job_id, job_digest=job.digest(), round=number, attempt=attempt)


def opening(
    job: JobConfig, caller: str, receiver: str, *, columns: int = 3, job_id: str = "attacked-1"
) -> pb.OpenJobRequest:
    """Return the request with which a party opens a job at another."""
    return pb.OpenJobRequest(
        turn=turn_of(job, job_id=job_id),
        greeting=make_greeting(caller, ROLES.get(caller, "passive")),
        expected_role=ROLES[receiver],
        job_json=job.canonical_json(),
        columns=columns,
    )


@dataclass(frozen=True)
class Rows:
    """What the parties hold: made by the test, which is why it can check what an attack finds."""

    passive: np.ndarray
    active: np.ndarray
    labels: np.ndarray

    @classmethod
    def drawn(cls, rows: int, columns: tuple[int, int], seed: int = 5) -> Rows:
        """Draw rows; the first two columns of A are 0/1, the second one with a single 1."""
        rng = np.random.default_rng(seed)
        passive = rng.normal(size=(rows, columns[0]))
        passive[:, 0] = rng.integers(0, 2, rows)
        passive[:, 1] = 0
        passive[rows // 2, 1] = 1
        active = rng.normal(size=(rows, columns[1]))
        weights = rng.normal(size=columns[0] + columns[1])
        labels = np.column_stack([passive, active]) @ weights + rng.normal(size=rows) + 20
        return cls(passive, active, labels)

    def times(self, factor: float) -> Rows:
        """Return the same rows in another unit."""
        return Rows(self.passive * factor, self.active * factor, self.labels * factor)

    def write(self, world: World, passive: Sequence[str] = ("party_a",)) -> None:
        """Write the tables; A's columns are dealt among the passive parties."""
        for party, block in zip(passive, np.array_split(self.passive, len(passive), axis=1), strict=True):
            world.write(party, {f"{party}{at}": column for at, column in enumerate(block.T)})
        own = {f"b{at}": column for at, column in enumerate(self.active.T)}
        world.write("party_b", {**own, "y": self.labels})
