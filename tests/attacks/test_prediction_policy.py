"""A party B that wants more than A's policy gives: others' models, more rows, single ones, their ids."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.errors import PeerFailed, PeerRefused, Refused
from common.rpc.channels import Deadline
from common.rpc.greeting import make_greeting
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import predict_pb2 as pb
from common.rpc.pb.active_party_pb2 import JOB_FINISHED
from common.runtime.compute import InProcessExecutor
from common.runtime.config.networks import NetJob
from common.runtime.config.predict import PredictJob
from common.runtime.guest.quota import DailyQuota
from common.runtime.state import StateError
from common.runtime.stopwatch import Stopwatch
from party_b.alignment import AlignmentConductor, Alike
from party_b.alignment_client import AlignmentClient
from tests.attacks.world import CALL_S, POLICY, Rows, World, job_of, opening, turn_of

ROWS = Rows.drawn(40, (4, 3))
IDS = tuple(f"r{at:04d}" for at in range(40))
AGREED = {"rows_per_day": 60, "min_rows": 10, "online": True}


def predicting(model: str, **changes: Any) -> PredictJob:
    values = {
        "job": "predict",
        "algorithm": "predict",
        "active": "party_b",
        "passive": ["party_a"],
        "model": model,
        "data": {"dataset": "rows"},
    }
    return PredictJob.model_validate_json(json.dumps({**values, **changes}))


@dataclass
class Trained:
    """A running party_a that has a model, and the job that left it."""

    world: World
    model: str
    a: Any

    async def open(self, job: PredictJob | NetJob, job_id: str = "predict-1") -> Any:
        return await self.a.OpenJob(opening(job, "party_b", "party_a", job_id=job_id), timeout=CALL_S)

    async def align(
        self, job: PredictJob | NetJob, ids: tuple[str, ...] = IDS, job_id: str = "predict-1", there: int = 40
    ) -> bytes:
        """Align by hand with A, which has so many ids; a B of this kind does not mind how few are common."""
        client = AlignmentClient("party_a", self.a, turn_of(job, job_id=job_id), Deadline(CALL_S, "CALL_S"))
        alike = Alike("party_b", ids, {"party_a": there, "party_b": len(ids)}, 1)
        conductor = AlignmentConductor(alike, {"party_a": client}, InProcessExecutor(), Stopwatch(), unheard)
        return (await conductor.run()).alignment.alignment_id

    async def scores(
        self, job: PredictJob, alignment_id: bytes, positions: tuple[int, ...] = (), job_id: str = "predict-1"
    ) -> list[float]:
        request = pb.ScoreRowsRequest(
            turn=turn_of(job, job_id=job_id), alignment_id=alignment_id, rows=40, positions=positions
        )
        return [score async for chunk in self.a.ScoreRows(request, timeout=CALL_S) for score in chunk.scores]

    def sent(self, name: str) -> int:
        """Return how many messages of a type have left party_a."""
        return sum(
            passage.direction == "sent" and passage.message_type == f"vfl.v1.{name}"
            for passage in self.world.wire["party_a"]
        )


async def unheard(message: str, eta_s: float) -> None:
    """Take what an alignment says about itself."""


@contextlib.asynccontextmanager
async def trained(world: World, **agreed: Any) -> AsyncIterator[Trained]:
    """Train between three services; yield party_a as party_b may then speak to it by hand."""
    world.policies["party_a"] = {**POLICY, "prediction": {**AGREED, **agreed}}
    ROWS.write(world)
    async with world.running("coordinator", "party_a", "party_b"):
        record = await world.train(job_of(train={"max_rounds": 2}))
        assert record.status == JOB_FINISHED, record.error.what
        async with world.dialled("party_a", "party_b") as a:
            yield Trained(world, record.job_id, a)


async def test_a_model_is_scored_for_the_party_it_was_trained_for_and_for_no_other(world: World) -> None:
    async with trained(world) as b, world.dialled("party_a", "stranger") as stranger:
        job = predicting(b.model, active="stranger")
        request = opening(job, "stranger", "party_a")
        request.greeting.CopyFrom(make_greeting("stranger", "active"))
        with pytest.raises(PeerRefused, match="was not trained for stranger"):
            await stranger.OpenJob(request, timeout=CALL_S)


async def test_without_an_agreement_not_even_a_preflight_tells_whether_a_model_is_there(world: World) -> None:
    ROWS.write(world)
    async with world.running("coordinator", "party_a"), world.dialled("party_a", "party_b") as a:
        request = opening(predicting("whatever"), "party_b", "party_a")
        request.preflight = True
        with pytest.raises(PeerRefused, match="does not allow scoring new rows"):
            await a.OpenJob(request, timeout=CALL_S)


@pytest.mark.parametrize("model", ["../model", "a/b", "A", ""])
async def test_the_name_of_a_model_leads_nowhere_but_to_a_job(world: World, model: str) -> None:
    async with trained(world) as b:
        text = predicting(b.model).canonical_json().replace(b.model.encode(), model.encode())
        request = opening(predicting(b.model), "party_b", "party_a")
        request.job_json = text
        request.turn.job_digest = hashlib.sha256(text).digest()
        with pytest.raises(PeerRefused, match="not valid"):
            await b.a.OpenJob(request, timeout=CALL_S)


async def test_scores_need_an_alignment_that_a_has_made_with_b_in_this_job(world: World) -> None:
    async with trained(world) as b:
        job = predicting(b.model)
        await b.open(job)
        with pytest.raises(PeerRefused, match="alignment that is not kept"):
            await b.scores(job, b"\0" * 16)
        assert b.sent("PartialScores") == 1  # those of the training


async def test_a_batch_is_all_common_rows_and_never_some(world: World) -> None:
    async with trained(world) as b:
        job = predicting(b.model)
        await b.open(job)
        aligned = await b.align(job)
        with pytest.raises(PeerRefused, match="single rows were asked for"):
            await b.scores(job, aligned, (3,))


@pytest.mark.parametrize("positions", [(), (3, 3), (40,), (0, 4_000_000_000)])
async def test_positions_are_distinct_ones_of_the_common_rows(
    world: World, positions: tuple[int, ...]
) -> None:
    async with trained(world) as b:
        job = predicting(b.model, mode="online")
        await b.open(job)
        aligned = await b.align(job)
        with pytest.raises(PeerRefused, match="to be scored"):
            await b.scores(job, aligned, positions)


async def test_one_real_id_among_made_up_ones_is_not_led_back(world: World) -> None:
    """B counts one common point by itself, which no intersection can hide; A says nothing about it."""
    async with trained(world) as b:
        job = predicting(b.model)
        await b.open(job)
        with pytest.raises(PeerRefused, match="1 common ids are fewer than the 10"):
            await b.align(job, (IDS[7], *(f"x{at:04d}" for at in range(60))))
        assert b.sent("CommonPositions") == 1  # that of the training


async def test_the_count_is_of_rows_a_day_over_all_jobs_at_once(world: World) -> None:
    async with trained(world) as b:
        job, names = predicting(b.model), ["predict-1", "predict-2"]
        for name in names:
            await b.open(job, name)
        aligned = [await b.align(job, job_id=name) for name in names]
        found = await asyncio.gather(
            *(b.scores(job, one, job_id=name) for one, name in zip(aligned, names, strict=True)),
            return_exceptions=True,
        )
        assert sorted(isinstance(one, PeerRefused) for one in found) == [False, True]
        assert len(next(one for one in found if isinstance(one, list))) == 40


async def test_rows_that_were_scored_already_are_not_counted_twice(world: World) -> None:
    async with trained(world, rows_per_day=2) as b:
        job = predicting(b.model, mode="online")
        await b.open(job)
        aligned = await b.align(job)
        first = await b.scores(job, aligned, (3, 5))
        assert await b.scores(job, aligned, (5, 3)) == first[::-1]
        with pytest.raises(PeerRefused, match="1 rows are to be scored"):
            await b.scores(job, aligned, (3, 6))


async def test_what_cannot_be_counted_is_not_sent(world: World) -> None:
    async with trained(world) as b:
        job = predicting(b.model)
        await b.open(job)
        aligned = await b.align(job)
        (world.root / "state" / "party_a" / "scored_rows").write_text("in the way")
        with pytest.raises(PeerFailed, match=r"the count of scored rows|cannot be written"):
            await b.scores(job, aligned)
        assert b.sent("PartialScores") == 1


async def test_a_prediction_has_no_rounds_and_none_of_their_calls(world: World) -> None:
    async with trained(world) as b:
        job = predicting(b.model)
        await b.open(job)
        aligned = await b.align(job)
        turn = turn_of(job, job_id="predict-1")
        with pytest.raises(PeerRefused, match="does not have this call"):
            await b.a.BuildDesign(
                he.BuildDesignRequest(turn=turn, alignment_id=aligned, rows=40), timeout=CALL_S
            )
        with pytest.raises(PeerRefused, match="does not have this call"):
            async for _ in b.a.SendPartialScores(he.PartialScoresRequest(turn=turn), timeout=CALL_S):
                pass


async def test_a_training_job_has_no_scores_of_single_rows(world: World) -> None:
    async with trained(world) as b:
        job = job_of(job="other")
        await b.a.OpenJob(opening(job, "party_b", "party_a", job_id="other-1"), timeout=CALL_S)
        request = pb.ScoreRowsRequest(turn=turn_of(job, job_id="other-1"), rows=40, positions=[1])
        with pytest.raises(PeerRefused, match="does not have this call"):
            async for _ in b.a.ScoreRows(request, timeout=CALL_S):
                pass


async def test_no_weight_and_no_feature_is_among_the_scores(world: World) -> None:
    async with trained(world) as b:
        job = predicting(b.model)
        await b.open(job)
        scores = await b.scores(job, await b.align(job))
        model = json.loads((world.root / "state" / "party_a" / "jobs" / b.model / "model.json").read_text())
        assert np.allclose(scores, ROWS.passive @ model["coefficients"], rtol=0, atol=1e-12)


class Calendar:
    """A day that the test turns."""

    day = "2026-03-01"

    def __call__(self) -> str:
        return self.day


async def test_a_day_begins_at_midnight_and_not_when_a_clock_is_set_back(tmp_path: Path) -> None:
    today = Calendar()
    quota = DailyQuota(tmp_path, 10, today)
    await quota.spend("party_b", 10)
    today.day = "2026-02-27"
    with pytest.raises(Refused, match="0 are left"):
        await DailyQuota(tmp_path, 10, today).spend("party_b", 1)
    today.day = "2026-03-02"
    await quota.spend("party_b", 4)
    assert DailyQuota(tmp_path, 10, today).left("party_b") == 6
    assert quota.left("another") == 10


async def test_rows_counted_ahead_are_lost_by_a_restart_and_never_gained(tmp_path: Path) -> None:
    today = Calendar()
    quota = DailyQuota(tmp_path, 10, today)
    for _ in range(3):
        await quota.spend("party_b", 2, ahead=5)
    assert quota.left("party_b") == 4
    assert DailyQuota(tmp_path, 10, today).left("party_b") == 3
    await quota.spend("party_b", 4)
    with pytest.raises(Refused, match="0 are left"):
        await quota.spend("party_b", 1, ahead=5)
    today.day = "2026-03-02"
    await quota.spend("party_b", 10, ahead=5)
    with pytest.raises(Refused):
        await quota.spend("party_b", 1)


async def test_a_damaged_count_is_not_taken_for_none(tmp_path: Path) -> None:
    quota = DailyQuota(tmp_path, 10, Calendar())
    await quota.spend("party_b", 3)
    (tmp_path / "scored_rows" / "party_b.json").write_text("{")
    with pytest.raises(StateError):
        await quota.spend("party_b", 1)
    with pytest.raises(StateError):
        quota.left("party_b")
