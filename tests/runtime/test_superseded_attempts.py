"""A later attempt takes the place of an earlier one only when that one has let go of its files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from common.rpc.pb import job_pb2 as pb
from common.runtime.config.job import JobConfig
from common.runtime.config.party import Deadlines, PartyConfig
from common.runtime.hosting import HostedJob, JobHost
from common.runtime.state import JobStore

JOB = JobConfig.model_validate_json(
    json.dumps(
        {
            "job": "kept",
            "active": "party_b",
            "passive": ["party_a"],
            "coordinator": "coordinator",
            "data": {"dataset": "d", "label": "y"},
        }
    )
)


def turn(attempt: int) -> pb.Turn:
    return pb.Turn(job_id="kept-1", job_digest=JOB.digest(), attempt=attempt)


async def test_whoever_opens_it_waits_although_the_caller_who_superseded_it_was_lost(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    store.open()
    begun, let_go, left = asyncio.Event(), asyncio.Event(), []

    async def leave(hosted: HostedJob[None]) -> None:
        begun.set()
        await let_go.wait()
        left.append(hosted.attempt)

    async def never(*_: object) -> pb.CloseJobReply:
        raise AssertionError("no job ends here")

    own = PartyConfig.model_construct(
        party="party_a", role="passive", state=store.root, deadlines=Deadlines()
    )
    host: JobHost[None] = JobHost(own, never, leave)
    await host.add(pb.OpenJobRequest(turn=turn(1)), JOB, None)
    lost = asyncio.ensure_future(host.known(turn(2), "party_b"))
    await begun.wait()
    lost.cancel()
    await asyncio.wait([lost])

    next_caller = asyncio.ensure_future(host.known(turn(2), "party_b"))
    await asyncio.wait([next_caller], timeout=0.05)
    assert not next_caller.done()
    let_go.set()

    assert await next_caller is None
    assert left == [1]
