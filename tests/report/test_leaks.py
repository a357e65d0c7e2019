"""What the report says that each party learnt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from common.runtime.config.job import JobConfig
from party_b.regression.leaks import RunSize, flows_of, leaks_of

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
    return "\n".join(leaks_of(job(passive, **train), SIZE))


def test_the_run_s_own_numbers_are_in_the_sentences() -> None:
    text = leaks()
    assert "a saw its own gradient, 6 numbers, in each of 10 rounds" in text
    assert "−X'y" in text
    assert "b saw its own gradient, 5 numbers" in text
    assert "c decrypted 20 packed gradients, each under a fresh mask" in text
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


def test_noise_without_a_proof_is_named() -> None:
    assert "random bits" not in leaks()
    short = JobConfig.model_validate(job().model_dump() | {"crypto": {"key_bits": 3072, "noise": "short"}})
    assert "has 256 random bits (crypto.noise: short), not the 1,536" in leaks_of(short, SIZE)[-1]


def test_the_curvature_is_named_only_when_it_was_told() -> None:
    assert "largest eigenvalue" in leaks(learning_rate="auto")
    assert "largest eigenvalue" not in leaks()


def test_mini_batches_are_counted_against_the_rows_however_many_rounds_there_are() -> None:
    for rounds in (10, 100):
        text = "\n".join(leaks_of(job(batch_size=30), replace(SIZE, rounds=rounds)))
        assert "10 × 6 = 60 sums over 309 rows" in text
        assert "fewer than there are rows" in text


def test_a_batch_of_more_than_half_of_the_rows_is_all_rows() -> None:
    assert "batches" not in leaks(batch_size=200)


def test_every_passive_party_is_named() -> None:
    size = RunSize({"a": 6, "a2": 3, "b": 5}, SIZE.ids, 309, 133, 10, {("a", "b"): 450, ("a", "a2"): 470})
    text = "\n".join(leaks_of(job(("a", "a2")), size))
    assert "a2 saw its own gradient, 3 numbers" in text
    assert "c decrypted 30 packed gradients" in text
    assert "a and a2" in text
    assert "without knowing which ids these are: a and b 450, a and a2 470" in text


def test_an_earlier_alignment_is_told_and_no_points_flow() -> None:
    size = replace(SIZE, alignment="reused")
    assert "learnt nothing new about ids in this job" in "\n".join(leaks_of(job(), size))
    assert not [flow for flow in flows_of(job(), size) if "points" in flow.what]


def test_only_row_numbers_and_aggregates_are_in_the_clear_before_the_model_is_measured() -> None:
    flows = flows_of(job(loss_every=0), SIZE)
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
    whats = {every: [flow.what for flow in flows_of(job(loss_every=every), SIZE)] for every in (0, 1)}
    assert not any("loss" in what for what in whats[0])
    assert sum("loss" in what for what in whats[1]) == 3


def test_gram_rounds_tell_who_holds_the_masked_products_and_who_the_masks() -> None:
    size = replace(SIZE, columns={"a": 6, "a2": 2, "b": 5})
    text = "\n".join(leaks_of(gram_job(("a", "a2")), size))
    assert (
        "a received b's columns and labels (6 in all) of 309 training rows, encrypted under c's key" in text
    )
    assert "b holds the 6 × 6 cross products of a's columns with its own" in text
    assert "a holds the 2 × 6 cross products of a2's columns with its own" in text
    assert "statistical distance of 2^-40. a2 holds the masks. Neither knows the products." in text
    assert "b carried a's encrypted rows to a2" in text
    assert (
        "c decrypted 10 ciphertexts of cross products in the set-up and 3 of results in each of 10 rounds"
        in text
    )
    assert "can decrypt every training row of b, its labels included" in text
    assert "partial score and every residual" not in text


def test_conjugate_gradients_name_every_scalar_that_travels() -> None:
    text = leaks(solver="cg")
    assert "b received two numbers of a in every round in the clear: its parts of p·Hp and of r·M⁻¹r" in text
    assert "a received three numbers in every round" in text
    assert "c decrypted no loss" in text
    assert "b knows the training objective of every round" in text
    assert "largest eigenvalue" not in leaks(solver="cg", learning_rate="auto")


@pytest.mark.parametrize("solver", ["gd", "cg"])
def test_no_row_of_the_batch_is_said_to_travel_in_gram_rounds(solver: str) -> None:
    flows = flows_of(gram_job(("a",), solver=solver), SIZE)
    assert not any("batch" in flow.what for flow in flows)
    assert {flow.protection for flow in flows if "cross products" in flow.what} == {"encrypted", "masked"}
    assert any("p·Hp" in flow.what for flow in flows) is (solver == "cg")


def test_the_first_gradient_of_a_logistic_job_is_named_for_what_it_is() -> None:
    values = job().model_dump() | {"algorithm": "he_logistic"}
    assert "The first one is −0.5·X'y" in "\n".join(leaks_of(JobConfig.model_validate(values), SIZE))


def gram_job(passive: tuple[str, ...], **train: Any) -> JobConfig:
    return JobConfig.model_validate(job(passive, **train).model_dump() | {"crypto": {"rounds": "gram"}})
