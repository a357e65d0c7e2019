"""What a job file can ask for, each by real processes, against the same training on pooled data."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from common.rpc.pb.active_party_pb2 import JOB_FINISHED
from tests.e2e.conftest import three_parties
from tests.e2e.parties import Federation, ended, job, party
from tests.e2e.tables import pooled, weights_of

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def federation(start, tables) -> Federation:
    """Return the usual three parties and a second passive one."""
    return start(*three_parties(tables), party("party_a2", "passive", {"patients": tables["party_a2"]}))


def models(federation, config, job_id):
    return {name: federation.model(name, job_id) for name in (*config.passive, config.active)}


async def run_like_pooled(federation, tables, config, tolerance=1e-7):
    """Run a job, hold weights and losses to the pooled run's, and return id and report."""
    job_id, report = await federation.run(config)
    expected = pooled(config, tables, report["rounds"])
    assert np.abs(weights_of(config, models(federation, config, job_id)) - expected.weights).max() < tolerance
    for loss, pooled_loss in zip(report["loss_history"], expected.losses, strict=True):
        assert loss is None or abs(loss - pooled_loss) < tolerance
    return job_id, report


async def test_two_passive_parties_train_with_the_active_one(federation, tables):
    config = job(passive=["party_a", "party_a2"])
    job_id, report = await run_like_pooled(federation, tables, config)
    assert set(report["traffic"]) == {"party_a", "party_a2", "party_b", "coordinator"}
    assert None not in report["loss_history"]
    assert federation.model("party_a2", job_id)["features"] == ["sugar", "pulse"]


async def test_minibatches_see_the_same_rows_at_every_party(federation, tables):
    config = job(train={"batch_size": 16, "max_rounds": 8, "seed": 5})
    await run_like_pooled(federation, tables, config)


async def test_a_job_stops_when_the_loss_has_settled_over_an_epoch(federation, tables):
    train = {"batch_size": 24, "max_rounds": 200, "tolerance": 0.05, "loss_every": 2}
    _, report = await run_like_pooled(federation, tables, job(train=train))
    assert (report["converged"], report["stopped_because"]) == (True, "tolerance")
    assert report["rounds"] < 200
    assert [loss is not None for loss in report["loss_history"][:4]] == [True, False, True, False]


async def test_without_a_loss_nobody_sees_one_and_the_key_holder_is_never_asked(federation, tables):
    config = job(train={"loss_every": 0})
    job_id, report = await run_like_pooled(federation, tables, config)
    assert report["loss_history"] == [None] * 4
    assert "coordinator decrypted no loss, because the job does not ask for one." in report["leaks"]
    with_loss, _ = await federation.run(job())
    # Four EncryptedLoss messages of a ciphertext each, which nothing else makes up for.
    asked = {name: received_at_coordinator(federation, name) for name in (job_id, with_loss)}
    assert asked[with_loss] - asked[job_id] > 4 * 64


def received_at_coordinator(federation, job_id):
    return json.loads((federation.state("coordinator", job_id) / "status.json").read_text())["received_bytes"]


async def test_the_automatic_step_size_is_the_inverse_of_the_parties_curvatures(federation, tables):
    config = job(passive=["party_a", "party_a2"], train={"learning_rate": "auto", "max_rounds": 12})
    _, report = await run_like_pooled(federation, tables, config)
    losses = report["loss_history"]
    assert losses == sorted(losses, reverse=True)


async def test_phe_as_the_backend_gives_bit_for_bit_the_same_model(federation, tables):
    weights = {}
    for backend in ("gmpy2", "phe"):
        config = job(crypto={"backend": backend})
        job_id, _ = await run_like_pooled(federation, tables, config)
        weights[backend] = weights_of(config, models(federation, config, job_id)).tolist()
    assert weights["gmpy2"] == weights["phe"]


@pytest.mark.parametrize(
    ("data", "model"),
    [
        ({"intercept": False}, {}),
        ({"intercept": True}, {"penalize_intercept": True, "l2": 0.5}),
        ({"standardize": False}, {"l2": 0.0}),
    ],
    ids=["no intercept", "penalised intercept", "columns as they are"],
)
async def test_the_design_is_what_the_job_says(federation, tables, data, model):
    config = job(data=data, model=model)
    job_id, _ = await run_like_pooled(federation, tables, config)
    assert (federation.model("party_b", job_id)["intercept"] is None) == (not config.data.intercept)


async def test_without_test_rows_the_training_rows_speak(federation, tables):
    job_id, report = await run_like_pooled(federation, tables, job(data={"test_fraction": 0}))
    assert (report["rows"]["train"], report["rows"]["test"]) == (64, 0)
    assert report["metrics"]["test"] is None
    assert set(report["lift"]["federated"]) == set(report["lift"]["local"]) == {"train"}
    predictions = federation.state("party_b", job_id) / "predictions_test.csv"
    assert not predictions.exists() or len(predictions.read_text().splitlines()) == 1


async def test_jobs_at_the_same_time_do_not_disturb_each_other(federation, tables):
    configs = [
        job(job=f"at-once-{number}", data={"split_seed": number}, train={"max_rounds": 12})
        for number in range(3)
    ]
    async with federation.operator() as operator:
        submitted = [await operator.submit(config) for config in configs]
        records = await asyncio.gather(*(ended(operator, record.job_id) for record in submitted))
    assert [record.status for record in records] == [JOB_FINISHED] * 3
    for config, record in zip(configs, records, strict=True):
        weights = weights_of(config, models(federation, config, record.job_id))
        assert np.abs(weights - pooled(config, tables, 12).weights).max() < 1e-7


async def test_the_same_job_again_is_another_run_with_the_same_model(federation, tables):
    config = job(job="again")
    runs = [(await run_like_pooled(federation, tables, config))[0] for _ in range(2)]
    assert len(set(runs)) == 2
    first, second = (models(federation, config, run) for run in runs)
    assert weights_of(config, first).tolist() == weights_of(config, second).tolist()
    async with federation.operator() as operator:
        assert (await operator.show("again")).job_id == runs[-1]
