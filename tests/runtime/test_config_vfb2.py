"""The job file of VFB²: what a reader of the contract would write is taken, contradictions are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.errors import ConfigError
from common.runtime.config.job_kinds import job_from_json, load_any_job
from common.runtime.config.vfb2 import Vfb2Job

JOB: dict[str, Any] = {
    "job": "j",
    "algorithm": "vfb2",
    "active": ["b", "b2"],
    "passive": ["a"],
    "data": {"dataset": "d", "label": "y"},
}


def load(tmp_path: Path, **changes: Any) -> Vfb2Job:
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps({**JOB, **changes}))
    job = load_any_job(path)
    assert isinstance(job, Vfb2Job)
    return job


def test_a_list_of_active_parties_names_who_conducts_first(tmp_path: Path) -> None:
    job = load(tmp_path)
    assert (job.active, job.also_active, job.dominators) == ("b", ("b2",), ("b", "b2"))
    assert (job.guests, job.members) == (("b2", "a"), ("b", "b2", "a"))
    assert [job.role_of(name) for name in ("b", "b2", "a", "c")] == ["active", "active", "passive", None]
    assert load(tmp_path, active="b").dominators == ("b",)
    assert job_from_json(job.canonical_json()) == job


def test_a_coordinator_may_be_named_and_has_no_part(tmp_path: Path) -> None:
    job = load(tmp_path, coordinator="c")
    assert job.members == ("b", "b2", "a")
    assert job.role_of("c") == "coordinator"
    assert job_from_json(job.canonical_json()) == job


@pytest.mark.parametrize(
    "changes",
    [
        {"train": {"update": "saga", "loss": "squared", "batch_size": 7}},
        {"update": "saga", "loss": "squared", "batch_size": 7},
        {"train": {"update": "saga", "batch_size": 7}, "model": {"loss": "squared", "l2": 0.001}},
    ],
)
def test_settings_of_training_are_taken_from_where_the_contract_lets_one_write_them(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    job = load(tmp_path, **changes)
    assert (job.train.update, job.train.loss, job.train.batch_size) == ("saga", "squared", 7)
    assert job.model.l2 == 0.001


def test_the_label_may_be_called_differently_at_every_active_party(tmp_path: Path) -> None:
    job = load(tmp_path, data={"dataset": "d", "label": {"b": "y", "b2": "target"}})
    assert (job.data.label_of("b"), job.data.label_of("b2")) == ("y", "target")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"passive": ["b2"]}, 'passive[0]: "b2" already has another part'),
        ({"active": ["b", "b"]}, 'also_active[0]: "b" already has another part'),
        ({"active": "b", "passive": []}, "two parties at least"),
        ({"active": "b", "passive": [], "coordinator": "c"}, "two parties at least"),
        ({"coordinator": "a"}, 'coordinator: "a" already has another part'),
        ({"data": {"dataset": "d", "label": {"b": "y"}}}, "one column for each active party"),
        (
            {"data": {"dataset": "d", "label": "y", "positive": "yes"}, "loss": "squared"},
            "belongs to a classifier",
        ),
        ({"train": {"update": "adam"}}, "train.update"),
        ({"train": {"batch_size": 0}}, "train.batch_size"),
        ({"train": {"max_staleness": 0}}, "train.max_staleness"),
        ({"train": {"batch_size": 4}, "batch_size": 5}, "batch_size: unknown key"),
        ({"keyholder": "c"}, "keyholder: unknown key"),
        ({"passive": [f"a{number}" for number in range(70)]}, "at most 64 parties"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, **changes)
    assert words in caught.value.what
