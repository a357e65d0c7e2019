"""Rule 1.2.6 binds nobody who tells the key holder other columns than the rest of the job."""

from __future__ import annotations

import pytest

from common.errors import PeerRefused
from common.rpc.pb import job_pb2 as pb
from tests.attacks.byhand import by_hand
from tests.attacks.world import CALL_S, Rows, World, job_of, opening

ROWS = Rows.drawn(40, (4, 3))
JOB = job_of(train={"max_rounds": 3})


async def test_b_cannot_have_vectors_opened_that_are_longer_than_a_knows(world: World) -> None:
    ROWS.write(world)
    async with by_hand(world, JOB, (4, 4)) as b:
        await b.a.OpenJob(opening(JOB, "party_b", "party_a", columns=4), timeout=CALL_S)
        b.rows = 40
        await b.c.OpenJob(opening(JOB, "party_b", "coordinator", columns=40), timeout=CALL_S)
        with pytest.raises(PeerRefused, match="party_b has declared 40 columns to coordinator, but 4"):
            await b.prepare(40)


async def test_a_job_that_has_left_its_record_is_not_opened_again_after_a_restart(world: World) -> None:
    ROWS.write(world)
    async with by_hand(world, JOB, (4, 4)) as b:
        await b.open()
        closing = opening(JOB, "party_b", "party_a", columns=4)
        await b.a.CloseJob(pb.CloseJobRequest(turn=closing.turn, outcome=pb.CANCELLED), timeout=CALL_S)
    async with by_hand(world, JOB, (4, 4)) as b:
        with pytest.raises(PeerRefused, match="has ended here"):
            await b.a.OpenJob(opening(JOB, "party_b", "party_a", columns=4), timeout=CALL_S)
