"""What the report says that each party learnt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from common.runtime.config_job import JobConfig
from party_b.leaks import RunSize, he_linear_flows, he_linear_leaks

SIZE = RunSize(columns={"a": 6, "b": 5}, ids={"a": 500, "a2": 600, "b": 700}, train=309, test=133, rounds=10)


def job(passive: tuple[str, ...] = ("a",), **train: Any) -> JobConfig:
    return JobConfig.model_validate(
        {
            "job": "j",
            "active": "b",
            "passive": passive,
            "coordinator": "c",
            "data": {"dataset": "d", "label": "y"},
            "train": {"learning_rate": 0.1, "max_rounds": 10, **train},
        }
    )


def leaks(passive: tuple[str, ...] = ("a",), **train: Any) -> str:
    return "\n".join(he_linear_leaks(job(passive, **train), SIZE))


def test_the_run_s_own_numbers_are_in_the_sentences() -> None:
    text = leaks()
    assert "a saw its own gradient, 6 numbers, in each of 10 rounds" in text
    assert "−X'y" in text
    assert "b saw its own gradient, 5 numbers" in text
    assert "c decrypted 110 gradient entries" in text
    assert "309 training rows and 133 test rows" in text
    assert "which 442 of their own ids all of them have" in text
    assert "b 700, a 500" in text
    assert "can decrypt every partial score and every residual" in text


@pytest.mark.parametrize(("every", "claim"), [(1, "of 10 rounds, a number"), (4, "of 3 rounds, a number")])
def test_the_number_of_losses_that_c_decrypted_is_told(every: int, claim: str) -> None:
    assert claim in leaks(loss_every=every)


def test_without_a_loss_nobody_is_said_to_know_it() -> None:
    text = leaks(loss_every=0)
    assert "c decrypted no loss" in text
    assert "learnt the training loss" not in text


def test_the_curvature_is_named_only_when_it_was_told() -> None:
    assert "largest eigenvalue" in leaks(learning_rate="auto")
    assert "largest eigenvalue" not in leaks()


def test_mini_batches_are_counted_against_the_rows_however_many_rounds_there_are() -> None:
    for rounds in (10, 100):
        text = "\n".join(he_linear_leaks(job(batch_size=30), replace(SIZE, rounds=rounds)))
        assert "10 × 6 = 60 sums over 309 rows" in text
        assert "fewer than there are rows" in text


def test_a_batch_of_more_than_half_of_the_rows_is_all_rows() -> None:
    assert "batches" not in leaks(batch_size=200)


def test_every_passive_party_is_named() -> None:
    size = RunSize({"a": 6, "a2": 3, "b": 5}, SIZE.ids, 309, 133, 10, {("a", "b"): 450, ("a", "a2"): 470})
    text = "\n".join(he_linear_leaks(job(("a", "a2")), size))
    assert "a2 saw its own gradient, 3 numbers" in text
    assert "c decrypted 140 gradient entries" in text
    assert "a and a2" in text
    assert "without knowing which ids these are: a and b 450, a and a2 470" in text


def test_an_earlier_alignment_is_told_and_no_points_flow() -> None:
    size = replace(SIZE, alignment="reused")
    assert "learnt nothing new about ids in this job" in "\n".join(he_linear_leaks(job(), size))
    assert not [flow for flow in he_linear_flows(job(), size) if "points" in flow.what]


def test_only_row_numbers_and_aggregates_are_in_the_clear_before_the_model_is_measured() -> None:
    flows = he_linear_flows(job(loss_every=0), SIZE)
    clear = [(flow.sender, flow.receiver, flow.amount) for flow in flows if flow.protection == "clear"]
    assert sorted(clear) == [
        ("a", "b", "442 once"),
        ("a", "b", "once"),
        ("b", "a", "442 once"),
        ("b", "a", "once"),
    ]
    masked = [flow for flow in flows if flow.protection == "masked"]
    assert all(flow.sender == "c" or flow.what == "ids as blinded points" for flow in masked)


def test_the_loss_flows_only_if_the_job_asks_for_it() -> None:
    whats = {every: [flow.what for flow in he_linear_flows(job(loss_every=every), SIZE)] for every in (0, 1)}
    assert not any("loss" in what for what in whats[0])
    assert sum("loss" in what for what in whats[1]) == 3
