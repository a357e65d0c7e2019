"""Gram rounds, conjugate gradients and the logistic loss between real processes with mutual TLS."""

from __future__ import annotations

import numpy as np
import pytest

from common.glm.logistic import fit_taylor
from common.glm.ridge import fit_ridge
from tests.e2e.parties import Federation, job, party
from tests.e2e.tables import pooled, prepared, read_csv, weights_of, write_csv

_NAMES = {"gram": "Gram rounds", "rowwise": "row-wise rounds"}
pytestmark = pytest.mark.e2e

GRAM = {"rounds": "gram"}
CG = {"solver": "cg", "max_rounds": 60}
POLICY = {"policy": {"min_rows": 20, "min_key_bits": 256, "algorithms": ["he_linear", "he_logistic"]}}


@pytest.fixture(scope="module")
def binary(tables, tmp_path_factory):
    """Return the tables with the label cut in two classes."""
    path = tmp_path_factory.mktemp("binary") / "party_b.csv"
    ids, values = read_csv(tables["party_b"])
    values[:, -1] = values[:, -1] > np.median(values[:, -1])
    write_csv(path, ("income", "visits", "y"), ids, values)
    return {**tables, "party_b": path}


@pytest.fixture(scope="module")
def four(start, tables) -> Federation:
    """Return two passive parties, the active one and the coordinator."""
    return start(
        party("coordinator", "coordinator", **POLICY),
        party("party_a", "passive", {"patients": tables["party_a"]}, **POLICY),
        party("party_a2", "passive", {"patients": tables["party_a2"]}, **POLICY),
        party("party_b", "active", {"patients": tables["party_b"]}, **POLICY),
    )


@pytest.fixture(scope="module")
def classifiers(start, binary) -> Federation:
    """Return three parties whose label has two classes."""
    return start(
        party("coordinator", "coordinator", **POLICY),
        party("party_a", "passive", {"patients": binary["party_a"]}, **POLICY),
        party("party_b", "active", {"patients": binary["party_b"]}, **POLICY),
    )


def exact(config, paths, fit):
    """Return the closed-form weights on pooled training rows, in the order of the job's parties."""
    blocks, label, train, _ = prepared(config, paths)
    targets = label if fit is fit_ridge else np.where(label > 0, 1.0, -1.0)
    return fit(np.column_stack(blocks)[train], targets[train], config.model.l2, "free")


async def test_gram_rounds_train_as_pooled_data_do_with_two_passive_parties(four, tables):
    config = job(job="gram-gd", passive=["party_a", "party_a2"], crypto=GRAM, train={"max_rounds": 5})
    job_id, report = await four.run(config)
    expected = pooled(config, tables, 5)
    assert np.abs(np.array(report["loss_history"]) - expected.losses).max() < 1e-7
    assert np.abs(weights_of(config, parts(four, job_id, config)) - expected.weights).max() < 1e-7
    assert four.unlike(job_id) == []


@pytest.mark.parametrize("rounds", ["gram", "rowwise"])
@pytest.mark.parametrize("passive", [["party_a"], ["party_a", "party_a2"]])
async def test_conjugate_gradients_end_at_the_ridge_solution(four, tables, rounds, passive):
    config = job(job=f"cg-{rounds}-{len(passive)}", passive=passive, crypto={"rounds": rounds}, train=CG)
    job_id, report = await four.run(config)
    expected = exact(config, tables, fit_ridge)
    assert report["converged"]
    assert weights_of(config, parts(four, job_id, config)) == pytest.approx(expected, rel=1e-6, abs=1e-8)
    assert report["rounds"] == len(report["loss_history"]) <= 20


@pytest.mark.parametrize("rounds", ["gram", "rowwise"])
async def test_the_logistic_loss_ends_at_the_taylor_fit(classifiers, binary, rounds):
    config = job(job=f"logistic-{rounds}", algorithm="he_logistic", crypto={"rounds": rounds}, train=CG)
    job_id, report = await classifiers.run(config)
    expected = exact(config, binary, fit_taylor)
    assert weights_of(config, parts(classifiers, job_id, config)) == pytest.approx(
        expected, rel=1e-6, abs=1e-8
    )
    assert set(report["metrics"]["test"]) == {"auc", "log_loss", "accuracy", "ks"}


@pytest.mark.parametrize(
    ("train", "chosen", "because"),
    [
        ({"max_rounds": 500, "tolerance": 1e-3}, "gram", "training is estimated at"),
        ({"max_rounds": 3, "batch_size": 24}, "rowwise", "mini-batches have no others"),
    ],
)
async def test_auto_is_decided_by_the_active_party_for_everybody(three, tables, train, chosen, because):
    config = job(job="auto", crypto={"rounds": "auto"}, train=train)
    job_id, report = await three.run(config)
    assert report["settings"]["crypto"]["rounds"] == chosen
    assert three.outcome("party_a", job_id)["job"] == report["settings"]
    assert three.outcome("party_b", job_id)["job"] == report["settings"]
    losses = np.array(report["loss_history"])
    assert np.abs(losses - pooled(config, tables, len(losses)).losses).max() < 1e-7
    assert any("cross products" in sentence for sentence in report["leaks"]) == (chosen == "gram")
    assert any(f"crypto.rounds: auto chose {_NAMES[chosen]}: {because}" in note for note in report["notes"])


def parts(federation, job_id, config):
    return {name: federation.model(name, job_id) for name in (*config.passive, config.active)}
