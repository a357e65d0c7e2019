"""A federation of real processes on loopback: start it, submit jobs to it, break it."""

from __future__ import annotations

import asyncio
import copy
import json
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from common.rpc.addresses import free_ports
from common.rpc.certs import create_ca, issue
from common.rpc.pb.active_party_pb2 import JOB_FINISHED, JobRecord
from common.runtime.cli.operator import Operator, operating
from common.runtime.config.job import JobConfig
from common.runtime.config.party import PartyConfig, load_party
from common.runtime.ledger.reading import verify
from common.runtime.ledger.reconcile import Difference, reconcile

PROGRAMS = {
    "coordinator": "coordinator",
    "passive": "party_a",
    "active": "party_b",
}  # in the order of dialling
WITHIN_S = 60.0
"""A deadline, never a wait: for a start, an end, or news, on a machine with other work."""
VFL = str(Path(sys.executable).with_name("vfl"))

Settings = dict[str, Any]

JOB: Settings = {
    "job": "small",
    "active": "party_b",
    "passive": ["party_a"],
    "coordinator": "coordinator",
    "data": {"dataset": "patients", "label": "y", "test_fraction": 0.25, "split_seed": 3},
    "model": {"l2": 0.01},
    "train": {"learning_rate": 0.2, "max_rounds": 4},
    "crypto": {"key_bits": 256, "precision_bits": 32},
}
ENDLESS = {"learning_rate": 0.01, "max_rounds": 1_000_000}
"""`train` of a job that is still in the middle whenever something is done to it."""


def changed(settings: Mapping[str, Any], **changes: Any) -> Settings:
    """Return settings with some sections updated and other values replaced."""
    result = copy.deepcopy(dict(settings))
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key].update(value)
        else:
            result[key] = value
    return result


def job(**changes: Any) -> JobConfig:
    """Return the small job with some changes."""
    return JobConfig.model_validate_json(json.dumps(changed(JOB, **changes)))


def party(name: str, role: str, tables: Mapping[str, Path] | None = None, **changes: Any) -> Settings:
    """Return a party file without addresses, certificates and peers, for tests: small keys, small data."""
    settings: Settings = {
        "party": name,
        "role": role,
        "listen": "127.0.0.1:0",
        "datasets": {dataset: {"source": {"csv": str(path)}} for dataset, path in (tables or {}).items()},
        "policy": {"min_rows": 20, "min_key_bits": 256},
        "compute": {"workers": 0},
        "deadlines": {"call_s": 20, "step_s": 60, "peer_s": 30},
    }
    return changed(settings, **changes)


@dataclass
class Party:
    """One party: its settings, and its process while that runs."""

    settings: Settings
    folder: Path
    address: str = ""
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return str(self.settings["party"])

    @property
    def log(self) -> str:
        return (self.folder / f"{self.name}.log").read_text()

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def command(self) -> list[str]:
        """Write the party file; return the command that runs the service with it."""
        path = self.folder / f"{self.name}.yaml"
        path.write_text(json.dumps(self.settings))  # JSON is YAML.
        return [sys.executable, "-P", "-m", PROGRAMS[self.settings["role"]], "-c", str(path)]

    def start(self) -> None:
        """Start the service and read from its one line on stdout where it listens."""
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=log)
        readable, _, _ = select.select([self.process.stdout], [], [], WITHIN_S)
        line = self.process.stdout.readline().decode().split() if readable else []
        assert line[:3] == [self.name, "listening", "on"], self.log
        self.address = line[3]
        # A party that comes back must be where its peers look for it.
        self.settings["listen"] = self.address

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, within_s: float = WITHIN_S) -> int:
        """Wait for the process to end; return its exit code."""
        self.process.stdout.close()
        return self.process.wait(within_s)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.ended()

    def restart(self, **changes: Any) -> None:
        """Stop the service in good order, and start it again with changed settings."""
        if self.runs:
            self.send(signal.SIGTERM)
            assert self.ended() == 0, self.log
        self.settings = changed(self.settings, **changes)
        self.start()


@dataclass
class Federation:
    """Several parties under one certificate authority; the active party's operator is us."""

    folder: Path
    parties: dict[str, Party] = field(default_factory=dict)

    def start_circle(self, *settings: Settings) -> Federation:
        """Start parties that all dial each other, on ports that are chosen before."""
        ports = free_ports(len(settings))
        addresses = {one["party"]: f"127.0.0.1:{port}" for one, port in zip(settings, ports, strict=True)}
        for own in settings:
            own["listen"] = addresses[own["party"]]
        return self.start(*settings, addresses=addresses)

    def start(self, *settings: Settings, addresses: Mapping[str, str] | None = None) -> Federation:
        """Start the parties in the order in which they dial each other, all on free ports."""
        known = addresses or {}
        certificates = self.folder / "certs"
        create_ca(certificates, "a CA for tests")
        roles = {one["party"]: one["role"] for one in settings}
        for own in sorted(settings, key=lambda one: list(PROGRAMS).index(one["role"])):
            name = own["party"]
            tls = issue(certificates, name)
            own["tls"] = {"ca": str(tls.ca), "cert": str(tls.cert), "key": str(tls.key)}
            own["state"] = str(self.folder / "state" / name)
            own["peers"] = {
                peer: known.get(peer)
                or (self.parties[peer].address if peer in self.parties and role != own["role"] else None)
                for peer, role in roles.items()
                if peer != name
            }
            self.parties[name] = Party(own, self.folder)
            self.parties[name].start()
        return self

    def __getitem__(self, name: str) -> Party:
        return self.parties[name]

    def stop(self) -> None:
        """Stop everybody; whoever still runs must end well, and nobody may have logged a bug."""
        running = [one for one in self.parties.values() if one.runs]
        for one in running:
            one.send(signal.SIGCONT)
            one.send(signal.SIGTERM)
        try:
            assert {one.name: one.ended() for one in running} == {one.name: 0 for one in running}
        finally:
            for one in running:
                one.process.kill()
        assert [one.name for one in self.parties.values() if "Traceback" in one.log] == []
        # Whatever was done to them, kill -9 included.
        verdicts = {name: verify(self.folder / "state" / name) for name in self.parties}
        assert {name: verdict.problems for name, verdict in verdicts.items() if verdict.problems} == {}

    def unlike(self, job_id: str) -> list[Difference]:
        """Return the messages of a job that only one of two parties' ledgers has."""
        states = [self.folder / "state" / name for name in sorted(self.parties)]
        return [
            difference
            for one, other in combinations(states, 2)
            for difference in reconcile(one, other, job_id).differences
        ]

    def all_run(self) -> bool:
        return all(one.runs for one in self.parties.values())

    def state(self, name: str, job_id: str) -> Path:
        """Return what a party keeps of a job."""
        return self.folder / "state" / name / "jobs" / job_id

    def model(self, name: str, job_id: str) -> dict[str, Any]:
        return json.loads((self.state(name, job_id) / "model.json").read_text())

    @property
    def party_file(self) -> Path:
        """The active party's file as its operator has it: with the address in use."""
        active = next(one for one in self.parties.values() if one.settings["role"] == "active")
        path = self.folder / "operator.yaml"
        path.write_text(json.dumps(active.settings | {"advertise": active.address}))
        return path

    def config(self, name: str) -> PartyConfig:
        """Return a party's configuration as the service itself reads it."""
        return load_party(Path(self.parties[name].command()[-1]))

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[Operator]:
        async with operating(load_party(self.party_file)) as operator:
            yield operator

    def vfl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line for the active party's operator."""
        return vfl(*arguments, "-p", str(self.party_file))

    def train(self, config: JobConfig, *options: str) -> subprocess.CompletedProcess[str]:
        """Submit a job with `vfl train`, and wait for its end."""
        return self.vfl("train", "-c", str(self.job_file(config)), *options)

    def following(self, config: JobConfig, *options: str) -> subprocess.Popen[str]:
        """Start `vfl train` and leave it running."""
        command = [VFL, "train", "-c", str(self.job_file(config)), "-p", str(self.party_file), *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def job_file(self, config: JobConfig) -> Path:
        path = self.folder / f"{config.job}.yaml"
        path.write_bytes(config.canonical_json())
        return path

    def outcome(self, name: str, job_id: str) -> dict[str, Any]:
        """Return how a party says that a job ended; empty as long as it says nothing."""
        path = self.state(name, job_id) / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    async def runs_the_next_job(self) -> bool:
        _, report = await self.run(job(job="the-next"))
        return report["rounds"] == JOB["train"]["max_rounds"]

    async def run(self, config: JobConfig, within_s: float = WITHIN_S) -> tuple[str, dict[str, Any]]:
        """Run a job that must finish; return its id and its report."""
        async with self.operator() as operator:
            record = await ended(operator, (await operator.submit(config)).job_id, within_s)
        assert record.status == JOB_FINISHED, record.error
        return record.job_id, json.loads((self.state("party_b", record.job_id) / "report.json").read_text())


def vfl(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `vfl` to its end."""
    return subprocess.run([VFL, *arguments], capture_output=True, text=True, timeout=2 * WITHIN_S)


async def ended(operator: Operator, job_id: str, within_s: float = WITHIN_S) -> JobRecord:
    """Watch a job to its end; return its last record."""
    async with asyncio.timeout(within_s):
        async for event in operator.watch(job_id):
            if event.HasField("record"):
                return event.record
    return await operator.show(job_id)


async def in_the_middle(operator: Operator, config: JobConfig, rounds: int = 3) -> str:
    """Submit a job and wait until some rounds are done; return its id."""
    submitted = await operator.submit(config)
    async with asyncio.timeout(WITHIN_S):
        async for event in operator.watch(submitted.job_id):
            assert not event.HasField("record"), event.message
            if event.round >= rounds:
                break
    return submitted.job_id


async def eventually(holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    """Poll until something holds; fails after `within_s` seconds."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - what is awaited is in other processes
            await asyncio.sleep(0.02)


def assert_error(result: subprocess.CompletedProcess[str], exit_code: int, words: Sequence[str]) -> None:
    """Check that a command ended with an exit code and one block on stderr that says certain words."""
    assert result.returncode == exit_code, result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("error: ")]) == 1, (
        result.stderr
    )
    assert "Traceback" not in result.stderr
    assert [word for word in words if word not in result.stderr] == [], result.stderr
