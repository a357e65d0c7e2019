"""Experiment 5: dominated updates a second beside a bare echo stream with messages of the same lengths.

Each end, of the echo as well as of the training, has a processor of its own: left to the machine's scheduler
the same echo makes 1,600 or 5,600 turns a second. Both take turns, and the fastest run of each counts;
medians are kept beside it.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.vfb2 import pictures, results
from benchmarks.vfb2.data import Pooled
from benchmarks.vfb2.echo import Sizes, rate
from benchmarks.vfb2.federation import Federation, Layout, federation
from benchmarks.vfb2.processor import pinned
from common.rpc.pb import job_pb2
from common.rpc.pb import vfb2_pb2 as pb

L2 = 1e-4
_ECHO_S = 2.0
_UPDATES = 12_000  # of one run
# At the end of an epoch a sum over all rows is made, and the disk is waited for. Rows come several times,
# where epochs would have fewer updates.
_LEAST_IN_EPOCH = 500


@dataclass(frozen=True, slots=True)
class _Measured:
    """How many of each a second, run by run."""

    updates: list[float] = field(default_factory=list)
    echo: list[float] = field(default_factory=list)
    lockstep: list[float] = field(default_factory=list)


def sizes_of(batch_size: int) -> Sizes:
    """Return the lengths of the messages of one dominated update, each travelling alone."""
    turn = job_pb2.Turn(job_id="x" * 26, job_digest=bytes(32), round=1)
    number, rows = 100_000, bytes([1]) * 4 * batch_size
    request = pb.ScoreRequest(number=number, asked=pb.SCORES_NOW, epoch=1, rows=rows)
    update = pb.ThetaUpdate(number=number, epoch=1, request=number, rows=rows, thetas=bytes(8 * batch_size))
    totals = [pb.PartialSum(number=number, tree=tree, words=bytes(8 * batch_size)) for tree in (1, 2)]
    applied = pb.Applied(applied=number, durable=number)
    return Sizes(
        pb.FromDominator(turn=turn, words=[pb.DominatorWord(request=request)]).ByteSize(),
        pb.ToDominator(turn=turn, words=[pb.CollaboratorWord(sum=total) for total in totals]).ByteSize(),
        pb.FromDominator(turn=turn, words=[pb.DominatorWord(update=update)]).ByteSize(),
        pb.ToDominator(turn=turn, words=[pb.CollaboratorWord(applied=applied)]).ByteSize(),
    )


async def run(
    pooled: Pooled, batches: Sequence[int], windows: Sequence[int], repeats: int
) -> list[dict[str, Any]]:
    """Take turns: echo, training, echo, training, …"""
    rows = []
    for batch_size in batches:
        enough = pooled.times(-(-_LEAST_IN_EPOCH * batch_size // len(pooled.labels)))
        with tempfile.TemporaryDirectory(prefix="vfl-vfb2-") as folder:
            async with federation(Layout(2, 1), enough, Path(folder)) as parties:
                for window in windows:
                    measured = _Measured()
                    for _ in range(repeats):
                        await _turn(parties, len(enough.labels), batch_size, window, measured)
                    rows.append(_row(batch_size, window, len(enough.labels), measured))
                    print(rows[-1], flush=True)
    title = "Dominated updates a second: q = 2, mutual TLS, loopback, a core each, fastest runs"
    picture = results.keep("echo", rows, title=title, set=pooled.name, rows_in_set=len(pooled.labels))
    columns = {
        "batch_size": "batch",
        "under_way": "under way",
        "updates_per_s": "updates / s",
        "echo_per_s": "echo / s",
        "ratio": "ratio",
        "updates_median": "median",
        "echo_median": "echo, median",
        "lockstep_per_s": "echo, one at a time / s",
    }
    results.show(title, rows, columns)
    pictures.rates(picture, rows, title)
    return rows


async def _turn(parties: Federation, rows: int, batch_size: int, window: int, measured: _Measured) -> None:
    certs, sizes = parties.folder / "certs", sizes_of(batch_size)
    measured.echo.append(await rate(certs, sizes, window, _ECHO_S))
    measured.lockstep.append(await rate(certs, sizes, 1, _ECHO_S))
    train = {
        "update": "saga",
        "batch_size": batch_size,
        "epochs": max(1, _UPDATES * batch_size // rows),
        "learning_rate": 0.01,
        "max_staleness": window,
    }
    with ExitStack() as stack:
        for place, process in enumerate(parties.processes.values()):
            stack.enter_context(pinned(process.pid, place))
        done = await parties.run(train, {"test_fraction": 0.0}, L2)
    measured.updates.append(sum(done.report["vfb2"]["updates"].values()) / done.seconds[-1])


def _row(batch_size: int, window: int, rows: int, measured: _Measured) -> dict[str, Any]:
    updates, echo = measured.updates, measured.echo
    return {
        "batch_size": batch_size,
        "under_way": window,
        "rows": rows,
        "updates_per_s": max(updates),
        "echo_per_s": max(echo),
        "ratio": max(updates) / max(echo),
        "updates_median": statistics.median(updates),
        "echo_median": statistics.median(echo),
        "lockstep_per_s": max(measured.lockstep),
        "all": {"updates": updates, "echo": echo, "lockstep": measured.lockstep},
    }
