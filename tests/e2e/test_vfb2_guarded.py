"""VFB² with `theta: encrypted` between processes: the plain model, and no θ outside of its dominator."""

from __future__ import annotations

import json

import numpy as np
import pytest

from common.rpc.pb.active_party_pb2 import JOB_FAILED, JOB_FINISHED
from tests.e2e.parties import WITHIN_S, ended, in_the_middle
from tests.e2e.vfb2_parties import four, job, parts, pooled, write_tables

pytestmark = pytest.mark.e2e

THREE = ("party_b", "party_a", "party_a2")
TRAIN = {"theta": "encrypted", "theta_key_bits": 512, "batch_size": 30, "max_staleness": 2}


def guarded(**train):
    return job(
        active="party_b", passive=["party_a", "party_a2"], train=TRAIN | train, data={"standardize": True}
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_tables(tmp_path_factory.mktemp("vfb2-guarded"))


@pytest.fixture(scope="module")
def federation(start, files):
    return start(*four(files, *THREE), circle=True)


@pytest.mark.parametrize(("update", "mode"), [("svrg", "async"), ("sgd", "async"), ("svrg", "sync")])
async def test_the_model_is_that_of_plain_training(federation, files, update, mode):
    decay = 0.0 if update == "svrg" else 0.3
    config = guarded(update=update, mode=mode, epochs=40, learning_rate=0.8, decay=decay)
    job_id, report = await federation.run(config)
    best, weights, _ = pooled(config, files)
    assert abs(report["loss_history"][-1] / best - 1) < (1e-6 if update == "svrg" else 1e-3)
    assert np.abs(parts(federation, config, job_id) - weights).max() < (1e-2 if update == "svrg" else 0.2)
    assert report["vfb2"]["same_updates_everywhere"]
    assert any("encrypted" in sentence for sentence in report["leaks"])
    spent = report["seconds"]["by_party"]
    assert min(spent["party_b"]["encrypting"], spent["party_b"]["decrypting"]) > 0
    assert min(spent[name]["multiplying"] for name in THREE[1:]) > 0
    assert not any("its sign is the label" in sentence for sentence in report["leaks"])


@pytest.mark.parametrize(("victim", "update"), [("party_a", "svrg"), ("party_b", "svrg"), ("party_b", "sgd")])
async def test_a_party_killed_in_the_middle_comes_back_without_its_masks_or_its_key(
    federation, files, victim, update
):
    decay = 0.0 if update == "svrg" else 0.05
    config = guarded(update=update, epochs=60, learning_rate=0.8, decay=decay)
    async with federation.operator() as operator:
        job_id = await in_the_middle(operator, config, rounds=2)
    federation[victim].kill()
    federation[victim].start()
    async with federation.operator() as operator:
        record = await ended(operator, job_id, 2 * WITHIN_S)
    assert record.status == JOB_FINISHED, record.error
    report = json.loads((federation.state("party_b", job_id) / "report.json").read_text())
    best, _, _ = pooled(config, files)
    assert abs(report["loss_history"][-1] / best - 1) < (1e-6 if update == "svrg" else 1e-2)
    assert report["vfb2"]["same_updates_everywhere"]
    assert report["vfb2"]["sessions"] > 1


async def test_a_step_size_can_be_tried_there_too(federation, files):
    config = guarded(update="svrg", epochs=10, learning_rate="auto")
    _, report = await federation.run(config)
    assert report["loss_history"][-1] < report["vfb2"]["objective_at_start"]


async def test_batches_from_which_theta_could_be_solved_are_refused(federation):
    config = guarded(update="svrg", batch_size=15, learning_rate=0.1)
    async with federation.operator() as operator:
        record = await ended(operator, (await operator.submit(config)).job_id)
    assert record.status == JOB_FAILED
    assert "at least 16 rows" in str(record.error)
