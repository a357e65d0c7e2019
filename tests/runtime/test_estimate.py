"""The cost model: what it says must follow from the job, and hold in a job that then runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.runtime.calibration import (
    FILE_NAME,
    Calibration,
    Machine,
    cache_folder,
    calibration,
    measure,
    this_machine,
)
from common.runtime.config.job import JobConfig
from common.runtime.estimate import Estimate, Shape, choose_rounds, estimate, most_rounds
from common.runtime.estimate_inputs import plan_of, with_rows

SPEED = Calibration(key_bits=2048, product_s=4.5e-6, noise_s=4e-4, table_s=0.15, decryption_s=2.6e-3)
QUIET = Machine(cores=2, others=0.0)


def job_of(**sections: Any) -> JobConfig:
    return JobConfig.model_validate(
        {
            "job": "some-job",
            "active": "party_b",
            "passive": ("party_a",),
            "coordinator": "coordinator",
            "data": {"dataset": "rows", "label": "y", "test_fraction": 0.0},
            **sections,
        }
    )


def shape_of(job: JobConfig, rows: int = 1000, columns: int = 10) -> Shape:
    return Shape(
        job=job,
        ids={"party_a": rows, "party_b": rows},
        aligned=rows,
        train=rows,
        columns={"party_a": columns, "party_b": columns},
        workers=2,
    )


def expected(job: JobConfig, rows: int = 1000, columns: int = 10, kind: str = "rowwise") -> Estimate:
    return estimate(shape_of(job, rows, columns), kind, SPEED, QUIET, "one machine")  # type: ignore[arg-type]


def test_row_wise_rounds_grow_with_the_rows_and_gram_rounds_do_not() -> None:
    job = job_of(train={"max_rounds": 50})
    few, many = expected(job, 1000), expected(job, 10_000)
    assert 8 < many.round_s / few.round_s < 11
    few, many = expected(job, 1000, kind="gram"), expected(job, 10_000, kind="gram")
    assert many.round_s == pytest.approx(few.round_s, rel=0.1)
    assert many.seconds["training"] > 1.7 * few.seconds["training"]


def test_short_noise_costs_less_where_ciphertexts_are_made() -> None:
    proven, short = (expected(job_of(crypto={"noise": noise})) for noise in ("proven", "short"))
    assert short.round_s < 0.7 * proven.round_s
    gram = [expected(job_of(crypto={"noise": noise}), kind="gram") for noise in ("proven", "short")]
    assert gram[1].seconds["training"] < gram[0].seconds["training"]


def test_longer_keys_and_busy_cores_cost_more() -> None:
    job = job_of()
    shape = shape_of(job)
    slower = replace(SPEED, product_s=9e-6, noise_s=8e-4)
    base = estimate(shape, "rowwise", SPEED, QUIET, "one machine").round_s
    assert estimate(shape, "rowwise", slower, QUIET, "one machine").round_s > 1.7 * base
    busy = Machine(cores=2, others=4.0)
    assert estimate(shape, "rowwise", SPEED, busy, "one machine").round_s > 1.7 * base
    apart = estimate(shape, "rowwise", SPEED, QUIET, "machines of their own").round_s
    assert 0.5 * base < apart < base


def test_bytes_are_those_of_the_protocol() -> None:
    found = expected(job_of(train={"max_rounds": 3}), rows=1000)
    sent, received = found.traffic["party_a"]
    scores = 3 * 1000 * 512
    assert scores < sent < 1.03 * scores + 1000 * 32 * 4
    assert scores < received < 1.03 * scores + 1000 * 32 * 4
    total_sent = sum(one for one, _ in found.traffic.values())
    assert total_sent == pytest.approx(sum(other for _, other in found.traffic.values()), abs=10)


def test_an_estimate_can_be_had_for_the_rounds_that_it_took() -> None:
    job = job_of(train={"max_rounds": 100})
    ten = expected(job_of(train={"max_rounds": 10}))
    found = expected(job).for_rounds(10)
    assert found.total_s == pytest.approx(ten.total_s)
    assert found.traffic["party_b"] == pytest.approx(ten.traffic["party_b"], abs=100)
    assert json.loads(json.dumps(found.to_json()))["rounds"] == 10


def test_auto_takes_rows_for_mini_batches_and_for_few_rounds_of_many_columns() -> None:
    def choice(columns: int, **train: Any) -> str:
        return choose_rounds(shape_of(job_of(train=train), columns=columns), SPEED, QUIET, "one machine")

    assert choice(10, max_rounds=100) == "gram"
    assert choice(200, max_rounds=1) == "rowwise"
    assert choice(10, max_rounds=100, batch_size=100) == "rowwise"


def test_conjugate_gradients_are_expected_to_end_by_themselves() -> None:
    job = job_of(train={"solver": "cg", "max_rounds": 1000})
    assert most_rounds(job, {"party_a": 4, "party_b": 9}) == 9


def test_more_rows_are_a_larger_shape_and_the_plan_is_proved_for_them() -> None:
    shape = with_rows(shape_of(job_of()), 5000)
    assert (shape.aligned, shape.train, shape.ids["party_a"]) == (5000, 5000, 5000)
    assert "5000 rows" in plan_of(shape).describe()


def test_a_calibration_is_measured_once_and_kept(tmp_path: Path) -> None:
    first = calibration(256, tmp_path)
    assert calibration(256, tmp_path) == first
    assert first.noise_s > first.product_s > 0
    kept = json.loads((tmp_path / FILE_NAME).read_text())
    assert len(kept) == 1
    other = calibration(512, tmp_path)
    assert other.key_bits == 512
    assert len(json.loads((tmp_path / FILE_NAME).read_text())) == 2


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"x": 3}'])
def test_a_calibration_that_cannot_be_read_is_measured_again(content: str, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    assert calibration(256, tmp_path).decryption_s > 0


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    assert calibration(256, blocked / "folder").table_s > 0


def test_the_calibration_lies_in_the_user_s_cache_or_else_in_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_folder(tmp_path / "state") == tmp_path / "cache" / "colonnade"
    monkeypatch.setattr("os.access", lambda *_: False)
    assert cache_folder(tmp_path / "state") == tmp_path / "state"


def test_a_busy_machine_is_shared_fairly() -> None:
    assert QUIET.share(1) == 1
    assert QUIET.share(5) == 2
    assert Machine(2, 2.0).share(2) == 1
    found = this_machine()
    assert found.cores >= 1
    assert found.others >= 0


def test_operations_cost_what_their_products_cost() -> None:
    speed = measure(512)
    assert 20 < speed.noise_s / speed.product_s < 200
