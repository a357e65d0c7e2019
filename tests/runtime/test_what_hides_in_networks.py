"""What a job asks for under `privacy` is what hides labels and rows, drawn from a secret that no peer has."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
import pytest

from common.runtime.config.networks import NetJob
from common.runtime.net_design import NetDesign
from common.runtime.net_halves import Half, protection_of, release_of

RNG = np.random.default_rng(4)
GRADIENT = RNG.normal(size=(200, 8)).astype(np.float32)
LABELS = RNG.integers(0, 2, size=200).astype(float)
NO_ROWS = cast(NetDesign, None)  # what hides does not depend on a party's rows

Arrays = list[np.ndarray[Any, Any]]


def half(secret: bytes, run: int = 0, **privacy: Any) -> Half:
    values = {
        "job": "j",
        "algorithm": "splitnn",
        "active": "b",
        "passive": ["a"],
        "data": {"dataset": "d", "label": "y"},
        "privacy": privacy,
        "compare": {"seeds": 2},
    }
    job = NetJob.model_validate_json(json.dumps(values))
    return Half(job, job.runs[run], NO_ROWS, secret)


def protected(secret: bytes, run: int = 0, **privacy: Any) -> Arrays:
    """Return the labels that B trains with and the gradient that A gets."""
    protection = protection_of(half(secret, run, **privacy))
    return [protection.labels(LABELS), protection.gradient(GRADIENT, LABELS, 1, "a")]


def blurred(secret: bytes, run: int = 0, **privacy: Any) -> Arrays:
    """Return what is added to A's representations, in training and afterwards."""
    release = release_of(half(secret, run, **privacy))
    added = [release.training_noise(GRADIENT, 1), release.stored_noise(np.arange(200), 8, b"network")]
    return [np.zeros(1) if one is None else one for one in added]


def same(one: Arrays, other: Arrays) -> bool:
    return all(np.array_equal(left, right) for left, right in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("drawn", "privacy"),
    [
        (protected, {"protect": "max_norm"}),
        (protected, {"protect": "marvell"}),
        (protected, {"protect": "label_dp", "epsilon": 0.5}),
        (blurred, {"clip": 1.0, "noise": 0.5}),
    ],
    ids=["max_norm", "marvell", "label_dp", "noise"],
)
def test_only_a_party_s_own_secret_draws_again_what_hides(drawn: Any, privacy: dict[str, Any]) -> None:
    """Job, seeds and run are known to all: whoever could draw from them could take the noise away."""
    assert not same(drawn(b"one", **privacy), drawn(b"one"))
    assert same(drawn(b"one", **privacy), drawn(b"one", **privacy))
    assert not same(drawn(b"one", **privacy), drawn(b"two", **privacy))
    assert not same(drawn(b"one", **privacy), drawn(b"one", 1, **privacy))


def test_nothing_is_hidden_unless_a_job_asks_for_it() -> None:
    assert same(protected(b"one"), [LABELS, GRADIENT])
    assert same(blurred(b"one"), [np.zeros(1), np.zeros(1)])
    assert release_of(half(b"one", clip=0.5)).clip == 0.5
