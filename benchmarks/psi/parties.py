"""Two real parties align: party_a is a service in a process of its own, the active party conducts from here.

Everything is as in a job: mutual TLS on loopback, files, worker processes, points in chunks. Only training
is left out. What is timed goes from the first message of the alignment to the last common row.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.data.ids import in_id_order
from common.rpc import certs
from common.rpc.pb import job_pb2 as pb
from common.rpc.wiretap import Wiretap
from common.runtime.compute import open_executor
from common.runtime.config.job import JobConfig
from common.runtime.config.party import PartyConfig, load_party
from common.runtime.stopwatch import Stopwatch
from party_b.alignment import AlignmentConductor, Alike
from party_b.regression.passive_client import PassiveClient

_JOB = {
    "job": "psi-benchmark",
    "active": "party_b",
    "passive": ["party_a"],
    "coordinator": "coordinator",
    "data": {"dataset": "rows", "label": "y"},
}
_ROLES = {"coordinator": "coordinator", "party_a": "passive", "party_b": "active"}
_STEP_S = 3600.0


@dataclass(frozen=True, slots=True)
class Result:
    """One alignment of `ids` with as many, half of them common.

    Attributes:
        seconds: From the first message to the last common row, on the clock.
        cpu_seconds: Of both parties and their workers meanwhile, which other programs hardly change; an idle
            machine of two cores needs a little more than half of it.
        peak_bytes: By party: the service and its workers.
        sent_bytes: What crossed the wire, by the active party's count.
    """

    ids: int
    seconds: float
    cpu_seconds: float
    peak_bytes: dict[str, int]
    sent_bytes: int
    received_bytes: int


def ids_of(count: int) -> tuple[list[str], list[str]]:
    """Return the ids of both sides: `count` each, the half of which is common."""
    first = [f"customer-{number:09d}" for number in range(count)]
    second = [f"customer-{number:09d}" for number in range(count // 2, count // 2 + count)]
    return first, second


def align(folder: Path, count: int) -> Result:
    """Align once, and check the result against a set intersection."""
    passive_ids, active_ids = ids_of(count)
    lines = "\n".join(f"{one},1.5" for one in passive_ids)
    (folder / "party_a.csv").write_text(f"id,x\n{lines}\n")
    certs.create_ca(folder, "benchmark")
    for party in _ROLES:
        certs.issue(folder, party)
    with ExitStack() as services:
        _, coordinator = services.enter_context(_service(folder, "coordinator", {}))
        peers = {"coordinator": coordinator}
        process, peers["party_a"] = services.enter_context(_service(folder, "party_a", peers))
        own = _config(folder, "party_b", peers)
        return asyncio.run(_conduct(own, tuple(active_ids), set(passive_ids), process.pid))


async def _conduct(own: PartyConfig, ids: tuple[str, ...], theirs: set[str], pid: int) -> Result:
    job = JobConfig.model_validate_json(json.dumps(_JOB))
    turn, wiretap = pb.Turn(job_id="psi-benchmark", job_digest=job.digest()), Wiretap()
    client = PassiveClient("party_a", own, job, turn, wiretap)
    executor = open_executor("auto")
    reply = await client.open_job(own.datasets["rows"].id_rule().describe(), b"")
    attending = asyncio.ensure_future(client.attend())
    alike = Alike("party_b", ids, {"party_a": reply.rows, "party_b": len(ids)}, 50)
    start, start_cpu = time.monotonic(), _cpu_seconds(_processes(pid))
    parties = {"party_a": client.alignment}
    aligned = await AlignmentConductor(alike, parties, executor, Stopwatch(), _shown).run()
    seconds, processes = time.monotonic() - start, _processes(pid)  # Workers may have come in between.
    cpu_seconds = _cpu_seconds(processes) - start_cpu
    rows = aligned.alignment.rows
    expected = [row for row, one in enumerate(ids) if one in theirs]
    if rows.tolist() != in_id_order(ids, rows).tolist() or sorted(rows.tolist()) != expected:
        raise SystemExit("the alignment is not the intersection")
    traffic = wiretap.totals("psi-benchmark")
    peaks = {party: sum(map(_peak_bytes, pids)) for party, pids in processes.items()}
    attending.cancel()
    await client.close_job(pb.CloseJobRequest(turn=turn, outcome=pb.CANCELLED, reason="measured"))
    await client.disconnect()
    executor.shutdown()
    return Result(len(ids), seconds, cpu_seconds, peaks, traffic.sent_bytes, traffic.received_bytes)


async def _shown(message: str, eta_s: float) -> None:
    print(f"  {message}, {eta_s:.0f} s to go", file=sys.stderr)


@contextmanager
def _service(folder: Path, party: str, peers: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a party's service; yield its process and address."""
    _config(folder, party, peers)
    module = {"coordinator": "coordinator", "party_a": "party_a"}[party]
    command = [sys.executable, "-P", "-m", module, "-c", str(folder / f"{party}.yaml")]
    with (folder / f"{party}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise SystemExit(f"{party} did not start: {(folder / f'{party}.log').read_text()}")
        yield process, line.split()[-1]
    finally:
        process.terminate()
        process.wait()


def _config(folder: Path, party: str, peers: dict[str, str]) -> PartyConfig:
    named = {name: peers.get(name) for name in _ROLES if name != party}
    values = {
        "party": party,
        "role": _ROLES[party],
        "listen": "127.0.0.1:0",
        "tls": {"ca": "ca.pem", "cert": f"{party}.pem", "key": f"{party}.key"},
        "peers": named,
        "state": f"state/{party}",
        "datasets": {} if party == "coordinator" else {"rows": {"source": {"csv": "party_a.csv"}}},
        "deadlines": {"step_s": _STEP_S},
    }
    path = folder / f"{party}.yaml"
    path.write_text(json.dumps(values))  # JSON is YAML
    return load_party(path)


def _processes(pid: int) -> dict[str, list[int]]:
    """Return the processes of each party; the coordinator has no part in this."""
    return {
        "party_a": [pid, *_descendants(pid)],
        "party_b": [os.getpid(), *_workers_of_the_active_party()],
    }


def _workers_of_the_active_party() -> list[int]:
    own = _children(os.getpid())
    services = [pid for pid in own if "-m" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")]
    return [one for child in own if child not in services for one in (child, *_descendants(child))]


def _cpu_seconds(processes: dict[str, list[int]]) -> float:
    """Return what all these processes have computed so far."""
    ticks = 0
    for pid in (pid for pids in processes.values() for pid in pids):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # utime and stime, proc(5)
    return ticks / os.sysconf("SC_CLK_TCK")


def _peak_bytes(pid: int) -> int:
    """Return the peak resident memory of a process."""
    if pid == os.getpid():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _descendants(pid: int) -> list[int]:
    return [one for child in _children(pid) for one in (child, *_descendants(child))]
