"""Jobs of every kind, told apart by their algorithm: what each one says, and what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.errors import ConfigError, RemoteProtocolError
from common.runtime.config.alone import AloneJob
from common.runtime.config.job import JobConfig
from common.runtime.config.job_kinds import job_from_json, load_any_job
from common.runtime.config.local import load_local
from common.runtime.config.networks import NetJob
from common.runtime.config.predict import PredictJob, prediction_name

ALONE = {"job": "j", "algorithm": "local", "active": "b", "data": {"dataset": "d", "label": "y"}}
PREDICT = {
    "job": "j",
    "algorithm": "predict",
    "active": "b",
    "passive": ["a"],
    "model": "ridge-20260101-000000-ab12",
    "data": {"dataset": "d"},
}
REGRESSION = {**ALONE, "algorithm": "he_linear", "passive": ["a"], "coordinator": "c"}


@pytest.mark.parametrize(
    ("values", "kind"), [(ALONE, AloneJob), (PREDICT, PredictJob), (REGRESSION, JobConfig)]
)
def test_every_kind_survives_its_canonical_spelling(values: dict[str, Any], kind: type) -> None:
    job = kind.model_validate_json(json.dumps(values))
    again = job_from_json(job.canonical_json())
    assert type(again) is kind
    assert again == job
    assert again.digest() == job.digest()


def test_nobody_has_a_part_that_the_job_does_not_name() -> None:
    predict = PredictJob.model_validate_json(json.dumps(PREDICT))
    assert predict.members == ("b", "a")
    assert [predict.role_of(party) for party in "abc"] == ["passive", "active", None]
    alone = AloneJob.model_validate_json(json.dumps(ALONE))
    assert alone.members == ("b",)
    assert (alone.most_rounds, predict.most_rounds) == (0, 0)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({**PREDICT, "passive": ["b"]}, "already has another part"),
        ({**PREDICT, "passive": ["a", "a"]}, "already has another part"),
        ({**PREDICT, "model": "../x"}, "model"),
        ({**PREDICT, "coordinator": "c"}, "coordinator: unknown key"),
        ({**PREDICT, "mode": "all"}, "'batch' or 'online'"),
        ({**ALONE, "passive": ["b"]}, "already has another part"),
        ({**ALONE, "train": {"solver": "gd"}}, "train.solver: unknown key"),
        ({**ALONE, "data": {"dataset": "d", "label": "y", "positive": "yes"}}, "model.loss: logistic"),
        ({**ALONE, "algorithm": ["local"]}, "algorithm"),
        ([], "not valid"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_its_kind(values: Any, words: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        job_from_json(json.dumps(values).encode())
    assert words in caught.value.what


def test_a_name_of_a_prediction_is_never_too_long() -> None:
    assert prediction_name("ridge") == "predict-ridge"
    assert len(prediction_name("r" * 63)) == 63


def test_a_job_file_may_be_of_any_kind(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(ALONE))
    assert isinstance(load_any_job(path), AloneJob)


def test_a_job_of_b_alone_may_name_others_who_have_no_part() -> None:
    others = {"passive": ["a"], "coordinator": "c", "train": {"learning_rate": "auto", "seed": 3}}
    job = AloneJob.model_validate_json(json.dumps({**ALONE, **others}))

    assert (job.members, job.guests, job.scorers) == (("b",), (), ())
    assert [job.role_of(name) for name in ("a", "b", "c", "d")] == ["passive", "active", "coordinator", None]


@pytest.mark.parametrize("section", [None, "model", "train"])
def test_settings_of_networks_may_stand_in_any_section_or_at_the_top(section: str | None) -> None:
    keys = {"embedding_dim": 4, "bottom": [8], "batch_size": 16, "epochs": 2, "clip": 1.0}
    given = {
        **ALONE,
        "algorithm": "splitnn",
        "passive": ["a"],
        **(keys if section is None else {section: keys}),
    }
    job = NetJob.model_validate_json(json.dumps(given))

    assert (job.model.embedding_dim, job.model.bottom, job.privacy.clip) == (4, (8,), 1.0)
    assert (job.train.batch_size, job.train.epochs) == (16, 2)
    assert job_from_json(job.canonical_json()) == job


@pytest.mark.parametrize("values", [ALONE, REGRESSION])
def test_a_slip_in_the_job_of_a_local_file_is_named_with_its_path_alone(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    path = tmp_path / "local.yaml"
    wrong = {**values, "data": {"dataset": "d", "labl": "y"}}
    path.write_text(json.dumps({"parties": [{"party": "b", "role": "active"}], "job": wrong}))
    with pytest.raises(ConfigError) as caught:
        load_local(path)
    assert 'job.data.labl: unknown key, did you mean "label"?' in caught.value.what
    assert "job.data.label: is missing" in caught.value.what


VFB2 = {**ALONE, "algorithm": "vfb2", "passive": ["a"]}
NET = {**ALONE, "algorithm": "jpl", "passive": ["a"]}


@pytest.mark.parametrize(
    ("values", "known", "foreign"),
    [(REGRESSION, "solver", "epochs"), (VFB2, "aggregation", "solver"), (NET, "patience", "solver")],
)
def test_an_unknown_key_in_a_local_file_is_answered_with_the_keys_of_that_algorithm(
    tmp_path: Path, values: dict[str, Any], known: str, foreign: str
) -> None:
    path = tmp_path / "local.yaml"
    wrong = {**values, "train": {"zzz": 1}}
    path.write_text(json.dumps({"parties": [{"party": "b", "role": "active"}], "job": wrong}))
    with pytest.raises(ConfigError, match=r"job\.train\.zzz: unknown key") as caught:
        load_local(path)
    assert known in caught.value.what
    assert foreign not in caught.value.what


@pytest.mark.parametrize(("slip", "meant"), [("vbf2", "vfb2"), ("JPL", "jpl"), ("split_nn", "splitnn")])
def test_an_unknown_algorithm_is_the_only_complaint_and_says_what_there_is(
    tmp_path: Path, slip: str, meant: str
) -> None:
    job = {**VFB2, "algorithm": slip, "train": {"epochs": 3}}
    alone, local = tmp_path / "job.yaml", tmp_path / "local.yaml"
    alone.write_text(json.dumps(job))
    local.write_text(json.dumps({"parties": [{"party": "b", "role": "active"}], "job": job}))
    for load, path, where in ((load_any_job, alone, ""), (load_local, local, "job.")):
        with pytest.raises(ConfigError) as caught:
            load(path)
        assert (
            caught.value.what == f'{where}algorithm: there is no algorithm "{slip}", did you mean "{meant}"?'
        )
        assert caught.value.advice == (
            "The algorithms are he_linear, he_logistic, vfb2, splitnn, jpl, fpd, local."
        )
