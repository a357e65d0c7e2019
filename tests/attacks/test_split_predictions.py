"""A party B that wants more of A's half of a split network than A's policy gives: rows, models, epochs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from common.errors import PeerRefused, Refused
from common.rpc.greeting import make_greeting
from common.rpc.pb import splitnn_pb2 as pb
from common.rpc.pb.active_party_pb2 import JOB_FINISHED
from common.runtime.config.networks import NetJob
from common.runtime.state import JobStore
from party_a.net_predict_calls import net_scorable
from tests.attacks.test_prediction_policy import Trained, predicting
from tests.attacks.world import CALL_S, World, opening, turn_of
from tests.roles.test_splitnn_services import POLICY, ROWS, net_job, write_rows

IDS = tuple(f"r{at:04d}" for at in range(ROWS))
AGREED = {"rows_per_day": ROWS + 20, "min_rows": 10, "online": True}


@contextlib.asynccontextmanager
async def trained(tmp_path: Path, job: NetJob, **agreed: Any) -> AsyncIterator[Trained]:
    """Train a split network; yield party_a as party_b may then speak to it by hand."""
    world = World(tmp_path / "world", policy=POLICY)
    world.policies["party_a"] = {**POLICY, "prediction": {**AGREED, **agreed}}
    write_rows(world)
    async with world.running("party_a", "party_b"):
        record = await world.train(job)  # type: ignore[arg-type]
        assert record.status == JOB_FINISHED, record.error
        async with world.dialled("party_a", "party_b") as a:
            yield Trained(world, record.job_id, a)


async def represented(b: Trained, job: Any, aligned: bytes, job_id: str) -> int:
    """Ask for the representations of all common rows; return how many came."""
    request = pb.RepresentRowsRequest(turn=turn_of(job, job_id=job_id), alignment_id=aligned, rows=ROWS)
    return sum([chunk.rows async for chunk in b.a.RepresentRows(request, timeout=CALL_S)])


async def test_a_half_serves_the_party_and_the_kind_of_prediction_that_were_agreed(
    tmp_path: Path,
) -> None:
    async with trained(tmp_path, net_job()) as b, b.world.dialled("party_a", "stranger") as stranger:
        request = opening(predicting(b.model, active="stranger"), "stranger", "party_a")
        request.greeting.CopyFrom(make_greeting("stranger", "active"))
        with pytest.raises(PeerRefused, match="was not trained for stranger"):
            await stranger.OpenJob(request, timeout=CALL_S)
        with pytest.raises(PeerRefused, match="with other passive parties"):
            await b.open(predicting(b.model, passive=["party_a", "party_a2"]))
        with pytest.raises(PeerRefused, match="scores batches only"):
            await b.open(predicting(b.model, mode="online"))
        own = b.world.config("party_a")
        with pytest.raises(Refused, match="scores 401 rows at least"):
            net_scorable(own, predicting(b.model), JobStore(own.state), ROWS + 1)
        # What `jpl` leaves at A: its student needs A no more, so that nothing more of A's may be asked for.
        path = b.world.root / "state" / "party_a" / "jobs" / b.model / "model.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "algorithm": "jpl"}))
        with pytest.raises(PeerRefused, match=r"\(jpl\) predicts without party_a"):
            await b.open(predicting(b.model))


async def test_representations_are_counted_by_the_day_before_they_leave(tmp_path: Path) -> None:
    async with trained(tmp_path, net_job()) as b:
        job = predicting(b.model)
        await b.open(job, "predict-1")
        aligned = await b.align(job, IDS, "predict-1", ROWS)
        assert await represented(b, job, aligned, "predict-1") == ROWS
        assert await represented(b, job, aligned, "predict-1") == ROWS  # the same again is no more
        await b.open(job, "predict-2")
        aligned = await b.align(job, IDS, "predict-2", ROWS)
        with pytest.raises(PeerRefused, match="400 rows are to be scored"):
            await represented(b, job, aligned, "predict-2")


async def test_representations_leave_with_the_weights_of_one_epoch_and_nothing_is_trained_after_them(
    tmp_path: Path,
) -> None:
    """With those of many epochs B would see many functions of the same columns of A's."""
    world, job = World(tmp_path / "world", policy=POLICY), net_job(train={"batch_size": 1024})
    write_rows(world)
    async with world.running("party_a"), world.dialled("party_a", "party_b") as a:
        b = Trained(world, "", a)
        await b.open(job)
        aligned = await b.align(job, IDS, "predict-1", ROWS)

        def turn(epoch: int) -> Any:
            return turn_of(job, epoch, "predict-1")  # type: ignore[arg-type]

        request = pb.BuildNetworkRequest(turn=turn(0), alignment_id=aligned, rows=ROWS)
        built = await a.BuildNetwork(request, timeout=CALL_S)

        async def epoch(number: int) -> None:
            begun = pb.EpochTurn(turn=turn(number), keep=[0, 1])
            zeros = pb.EpochTurn(turn=turn(number), gradient=bytes(4 * built.train_rows * built.width))
            async for _ in a.TrainEpoch(iter([begun, zeros]), timeout=CALL_S):
                pass

        async def handed_over(number: int) -> int:
            request = pb.RepresentationsRequest(turn=turn(number), rows=pb.RepresentationsRequest.TRAINING)
            return sum([chunk.rows async for chunk in a.SendRepresentations(request, timeout=CALL_S)])

        await epoch(1)
        assert await handed_over(1) == built.train_rows
        assert await handed_over(1) == built.train_rows
        with pytest.raises(PeerRefused, match="ended with another epoch"):
            await handed_over(0)
        with pytest.raises(PeerRefused, match="its representations were sent"):
            await epoch(2)
