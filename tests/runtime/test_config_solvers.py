"""What a job file may combine: rounds, solvers, batches, labels."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.errors import RemoteProtocolError
from common.runtime.config.job import JobConfig
from common.runtime.config.job_kinds import job_from_json

JOB: dict[str, Any] = {
    "job": "j",
    "active": "b",
    "passive": ("a",),
    "coordinator": "c",
    "data": {"dataset": "d", "label": "y"},
}


def merged(**sections: Any) -> dict[str, Any]:
    values = dict(JOB)
    for key, part in sections.items():
        values[key] = {**values.get(key, {}), **part} if isinstance(part, dict) else part
    return values


def job(**sections: Any) -> JobConfig:
    return JobConfig.model_validate(merged(**sections))


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"crypto": {"rounds": "gram"}, "train": {"batch_size": 50}}, "crypto.rounds: gram"),
        ({"train": {"solver": "cg", "batch_size": 50}}, "solver: cg"),
        ({"data": {"positive": "yes"}}, "belongs to a classifier"),
        ({"train": {"solver": "newton"}}, "'gd' or 'cg'"),
        ({"algorithm": "he_poisson"}, "'he_linear' or 'he_logistic'"),
    ],
)
def test_what_does_not_go_together_is_refused(sections: dict[str, Any], words: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        job_from_json(json.dumps(merged(**sections)).encode())
    assert words in caught.value.what


def test_auto_takes_gram_rounds_wherever_all_rows_are_used() -> None:
    assert job(crypto={"rounds": "auto"}).uses_gram
    assert not job(crypto={"rounds": "auto"}, train={"batch_size": 50}).uses_gram
    assert not job().uses_gram


def test_with_conjugate_gradients_a_tolerance_needs_no_loss_and_nobody_decrypts_one() -> None:
    config = job(train={"solver": "cg", "tolerance": 1e-8, "loss_every": 0})
    assert not any(map(config.decrypts_loss, range(1, 5)))
    assert not config.needs_curvature
    assert job().needs_curvature


def test_a_number_as_the_positive_label_is_the_text_it_would_be_in_a_file() -> None:
    assert job(algorithm="he_logistic", data={"positive": 2}).data.positive == "2"
    assert job(algorithm="he_logistic", data={"positive": "yes"}).data.positive == "yes"
