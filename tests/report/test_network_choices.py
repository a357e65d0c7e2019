"""The report says whether the job's model follows the split network, and how labels count in it."""

from __future__ import annotations

import pytest

from party_b.networks.choices import Choice, sentences


@pytest.mark.parametrize(
    ("taught", "words"),
    [
        (True, "jpl follows the split network; its 0/1 labels count 0.1 times"),
        (False, "this model is one without A"),
    ],
)
def test_what_was_chosen_for_the_jobs_own_model_is_said(taught: bool, words: str) -> None:
    ours = [Choice("jpl", seed, 1.0, taught if seed == 0 else True, 0.1) for seed in range(3)]
    others = [Choice("fpd", 0, 1.0, True, 1.0), Choice("jpl", 0, 0.5, True, 1.0)]
    (said,) = sentences([*others, *ours], "jpl", "party_b")
    assert words in said
    assert f"with {3 if taught else 2} of 3 seeds" in said


def test_a_model_without_a_teacher_has_nothing_to_choose() -> None:
    assert sentences([], "splitnn", "party_b") == []
