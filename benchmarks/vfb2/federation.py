"""q parties as processes on loopback over mutual TLS, with long links between them if wanted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.vfb2.data import Pooled
from benchmarks.vfb2.delaying_proxy import DelayingProxy
from benchmarks.vfb2.slowed import slowed
from common.rpc.addresses import free_ports, split_address
from common.rpc.certs import create_ca, issue
from common.runtime.cli.serve import service_command
from common.types import Floats

_START_S = 120.0
_DAYS = 60
# Linear algebra in one thread a party: with more of them, parties on one machine would fight for its cores.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Layout:
    """Who takes part.

    Attributes:
        parties: q; the first `active` ones have the labels.
        active: m.
        latency_s: One way, between any two parties.
        column_s: As much later, for each of its columns, a party gets what it is sent: the time that it would
            multiply, on a machine of its own. The first party, whom nobody dials, has it for nothing.
    """

    parties: int = 4
    active: int = 2
    latency_s: float = 0.0
    column_s: float = 0.0

    @property
    def names(self) -> list[str]:
        """Of all parties, the active ones first."""
        passive = [f"a{at}" for at in range(1, self.parties - self.active + 1)]
        return [*(f"b{at}" for at in range(1, self.active + 1)), *passive]


@dataclass(frozen=True, slots=True)
class Run:
    """What one job did.

    Attributes:
        seconds: When each epoch's objective was known, counted from that of the start.
        objectives: At those moments; the first is that of the start.
        report: The job's report.json.
        scores: The rows of predictions_test.csv, as they stand there.
    """

    seconds: list[float]
    objectives: list[float]
    report: Mapping[str, Any] = field(repr=False)
    scores: list[dict[str, str]] = field(repr=False)


@dataclass(slots=True)
class Federation:
    """Running services."""

    layout: Layout
    folder: Path
    addresses: Mapping[str, str]
    processes: Mapping[str, Process]
    _jobs: int = 0

    async def run(
        self, train: Mapping[str, Any], data: Mapping[str, Any], l2: float, slow: float = 0.0
    ) -> Run:
        """Run one job; the last passive party is slower by `slow` while it trains."""
        self._jobs += 1
        names, name = self.layout.names, f"run-{self._jobs}"
        job = {
            "job": name,
            "algorithm": "vfb2",
            "active": names[0],
            "also_active": names[1 : self.layout.active],
            "passive": names[self.layout.active :],
            "data": {"dataset": "rows", "label": "y", **data},
            "model": {"l2": l2},
            "train": dict(train),
        }
        path, out = self.folder / f"{name}.yaml", self.folder / name
        path.write_text(json.dumps(job))
        with slowed(self.processes[names[-1]].pid, slow):
            await self._trained(path, out)
        report = json.loads((out / "report.json").read_text())
        lines = (out / "predictions_test.csv").read_text().splitlines()
        head = lines[0].split(",")
        details = report["vfb2"]
        return Run(
            details["objective_seconds"],
            [details["objective_at_start"], *report["loss_history"]],
            report,
            [dict(zip(head, line.split(","), strict=True)) for line in lines[1:]],
        )

    async def _trained(self, job: Path, out: Path) -> None:
        """Submit a job and wait for its end, as its user would."""
        command = [sys.executable, "-P", "-c", "from common.runtime.cli.entry import main; main()", "train"]
        party = self.folder / f"{self.layout.names[0]}.yaml"
        process = await asyncio.create_subprocess_exec(
            *command, "-c", str(job), "-p", str(party), "--out", str(out),
            stdin=DEVNULL, stdout=PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        if process.returncode:
            raise SystemExit(f"a job of the experiment failed:\n{output.decode()[-4000:]}\n{self._logs()}")

    def _logs(self) -> str:
        logs = ((name, self.folder / f"{name}.log") for name in self.layout.names)
        return "\n".join(f"{name}: {log.read_text()[-1500:]}" for name, log in logs)


@asynccontextmanager
async def federation(
    layout: Layout, pooled: Pooled, folder: Path, dealt: Sequence[Floats] | None = None
) -> AsyncIterator[Federation]:
    """Run the services of a layout while the block runs; `dealt` are the parties' columns, if not even."""
    create_ca(folder / "certs", "experiment, throw-away", _DAYS)
    blocks = dict(zip(layout.names, dealt or pooled.blocks(layout.parties), strict=True))
    ports = free_ports(len(layout.names))
    listens = {name: f"127.0.0.1:{port}" for name, port in zip(layout.names, ports, strict=True)}
    async with AsyncExitStack() as stack:
        dialled = dict(listens)
        if layout.latency_s or layout.column_s:
            for name, address in listens.items():
                delay_s = layout.latency_s + layout.column_s * blocks[name].shape[1]
                proxy = DelayingProxy(split_address(address), delay_s)
                dialled[name] = await stack.enter_async_context(proxy.listening())
        processes: dict[str, Process] = {}
        stack.push_async_callback(_end, processes)
        for name, block in blocks.items():
            labels = pooled.labels if name.startswith("b") else None
            _write_rows(folder / f"{name}.csv", block, labels)
            _write_party(folder, name, listens[name], {k: v for k, v in dialled.items() if k != name})
            processes[name] = await _started(folder, name)
        yield Federation(layout, folder, dialled, processes)


def _write_rows(path: Path, block: Floats, labels: Floats | None) -> None:
    """Write a party's CSV; numbers keep every digit."""
    names = [f"x{at}" for at in range(block.shape[1])] + ([] if labels is None else ["y"])
    columns = block if labels is None else np.column_stack([block, labels])
    with path.open("w") as stream:
        stream.write(",".join(["id", *names]) + "\n")
        for row, values in enumerate(columns.tolist()):
            stream.write(f"r{row}," + ",".join(map(repr, values)) + "\n")


def _write_party(folder: Path, name: str, listen: str, peers: Mapping[str, str]) -> None:
    certs = folder / "certs"
    issue(certs, name, days=_DAYS)
    party = {
        "party": name,
        "role": "active" if name.startswith("b") else "passive",
        "listen": listen,
        "advertise": listen,
        "tls": {"ca": str(certs / "ca.pem"), "cert": f"{certs / name}.pem", "key": f"{certs / name}.key"},
        "peers": dict(peers),
        "state": str(folder / "state" / name),
        "datasets": {"rows": {"source": {"csv": str(folder / f"{name}.csv")}}},
        "policy": {"algorithms": ["vfb2"]},
        "compute": {"workers": 0},
        "deadlines": {"peer_s": 120},
    }
    (folder / f"{name}.yaml").write_text(json.dumps(party))


async def _started(folder: Path, name: str) -> Process:
    role = "active" if name.startswith("b") else "passive"
    with (folder / f"{name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *service_command(role, folder / f"{name}.yaml"),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=log,
            start_new_session=True,
            env=os.environ | _ONE_THREAD,
        )
    stdout = process.stdout
    line = b"" if stdout is None else await asyncio.wait_for(stdout.readline(), _START_S)
    if b"listening" not in line:
        raise SystemExit(f"{name} did not start:\n{(folder / f'{name}.log').read_text()[-3000:]}")
    return process


async def _end(processes: Mapping[str, Process]) -> None:
    for process in processes.values():
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGCONT)
            process.terminate()
    await asyncio.gather(*(process.wait() for process in processes.values()))
