"""The leaks of VFB² are said for each kind of job as they are, and none that a job does not have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.runtime.config.vfb2 import Vfb2Job
from party_b.asynchronous.leaks import Vfb2Size, vfb2_leaks


def leaks(passive: tuple[str, ...] = ("a1", "a2"), **train: Any) -> str:
    job = {
        "job": "j",
        "algorithm": "vfb2",
        "active": "b",
        "passive": passive,
        "data": {"dataset": "d", "label": "y"},
        "train": {"learning_rate": 0.1, **train},
    }
    parties = ("b", *passive)
    size = Vfb2Size(dict.fromkeys(parties, 3), dict.fromkeys(parties, 500), 300, 100, 4, {"b": 40})
    return "\n".join(vfb2_leaks(Vfb2Job.model_validate_json(json.dumps(job)), size))


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("logistic", "its sign is the label and its size the joint score, both exactly"),
        ("logistic_nonconvex", "its sign is the label and its size the joint score, both exactly"),
        ("squared", "it is the joint score minus the label"),
        ("robust", "it gives the joint score minus the label, up to one of two values"),
    ],
)
def test_what_theta_gives_away_is_said_to_every_collaborator_in_the_words_of_the_loss(
    loss: str, words: str
) -> None:
    text = leaks(loss=loss)
    assert (
        f"a1 received the derivative θ of the loss in the clear for every row of 40 updates: {words}" in text
    )
    assert "So a2 can know the label of every training row" in text
    assert "Gram matrix" in text
    assert "it gives every label away" in text
    assert "every label away" not in leaks(loss=loss, update="saga")


@pytest.mark.parametrize("update", ["sgd", "svrg"])
def test_with_theta_encrypted_gradients_are_told_of_and_no_label(update: str) -> None:
    text = leaks(theta="encrypted", update=update, batch_size=64)
    assert "can know the label" not in text
    assert "It learnt its own gradient of each of 40 updates" in text
    assert ("its own gradient over all 300 training rows" in text) == (update == "svrg")


def test_what_sums_hide_depends_on_the_parties_and_on_the_masks() -> None:
    assert "with two parties no aggregation can hide that" in leaks(passive=("a1",))
    assert "none of them by itself" in leaks()
    assert "two totally different trees" in leaks()
    assert "up to 1 parties together" in leaks(aggregation="pairwise")


@pytest.mark.parametrize("theta", ["plain", "encrypted"])
def test_trials_of_step_sizes_are_told_of_where_they_are_made(theta: str) -> None:
    words = "several were tried on the same first batches"
    assert words in leaks(theta=theta, batch_size=64, learning_rate="auto")
    assert words not in leaks(theta=theta, batch_size=64)
