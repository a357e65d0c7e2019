"""Experiment 5: dominated updates a second beside a bare echo stream with messages of the same lengths."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.vfb2 import pictures, results
from benchmarks.vfb2.data import Pooled
from benchmarks.vfb2.echo import Sizes, rate
from benchmarks.vfb2.federation import Layout, federation
from common.rpc.pb import job_pb2
from common.rpc.pb import vfb2_pb2 as pb

L2 = 1e-4
_ECHO_S = 3.0
# Of one run: enough that ends of epochs, which are no updates, weigh little.
_UPDATES = 6_000


def sizes_of(batch_size: int) -> Sizes:
    """Return the lengths of the messages of one dominated update, each travelling alone."""
    turn = job_pb2.Turn(job_id="x" * 26, job_digest=bytes(32), round=1)
    number, rows = 100_000, bytes([1]) * 4 * batch_size
    request = pb.ScoreRequest(number=number, asked=pb.SCORES_NOW, epoch=1, rows=rows)
    update = pb.ThetaUpdate(number=number, epoch=1, request=number, rows=rows, thetas=bytes(8 * batch_size))
    total = pb.PartialSum(number=number, tree=1, words=bytes(8 * batch_size))
    applied = pb.Applied(applied=number, durable=number)
    return Sizes(
        pb.FromDominator(turn=turn, words=[pb.DominatorWord(request=request)]).ByteSize(),
        pb.ToDominator(turn=turn, words=[pb.CollaboratorWord(sum=total)]).ByteSize(),
        pb.FromDominator(turn=turn, words=[pb.DominatorWord(update=update)]).ByteSize(),
        pb.ToDominator(turn=turn, words=[pb.CollaboratorWord(applied=applied)]).ByteSize(),
    )


async def run(pooled: Pooled, batches: Sequence[int], repeats: int, window: int) -> list[dict[str, Any]]:
    """Take turns: echo, training, echo, training, … and compare medians."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="vfl-vfb2-") as folder:
        place = Path(folder)
        async with federation(Layout(2, 1), pooled, place) as parties:
            for batch_size in batches:
                sizes, ours, echo, lockstep = sizes_of(batch_size), [], [], []
                for _ in range(repeats):
                    echo.append(await rate(place / "certs", sizes, window, _ECHO_S))
                    lockstep.append(await rate(place / "certs", sizes, 1, _ECHO_S))
                    train = {
                        "update": "saga",
                        "batch_size": batch_size,
                        "epochs": max(1, _UPDATES * batch_size // len(pooled.labels)),
                        "learning_rate": 0.01,
                        "max_staleness": window,
                    }
                    done = await parties.run(train, {"test_fraction": 0.0}, L2)
                    ours.append(sum(done.report["vfb2"]["updates"].values()) / done.seconds[-1])
                rows.append(_row(batch_size, ours, echo, lockstep))
                print(rows[-1], flush=True)
    title = f"Dominated updates a second: q = 2, mutual TLS, loopback, {window} under way"
    picture = results.keep("echo", rows, title=title, set=pooled.name, rows_in_set=len(pooled.labels))
    columns = {
        "batch_size": "batch",
        "updates_per_s": "updates / s",
        "echo_per_s": "echo / s",
        "ratio": "ratio",
        "lockstep_per_s": "echo, one at a time / s",
    }
    results.show(title, rows, columns)
    pictures.rates(picture, rows, title)
    return rows


def _row(batch_size: int, ours: list[float], echo: list[float], lockstep: list[float]) -> dict[str, Any]:
    median = statistics.median
    return {
        "batch_size": batch_size,
        "updates_per_s": median(ours),
        "echo_per_s": median(echo),
        "lockstep_per_s": median(lockstep),
        "ratio": median(ours) / median(echo),
        "all": {"updates": ours, "echo": echo, "lockstep": lockstep},
    }
