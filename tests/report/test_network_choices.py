"""The report says whether the job's model follows the split network, and how labels count in it."""

from __future__ import annotations

import pytest

from party_b.networks.choices import Choice, sentences
from party_b.networks.findings import Compared, NetFindings
from party_b.networks.verdict import network_verdict
from party_b.reporting.evaluation import Lift


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


def test_the_verdict_says_where_asking_a_would_help_more_than_learning_from_it() -> None:
    ours = (Compared("jpl", "local ×2", 1.0, 0.1, 0.4, 5), Compared("jpl", "splitnn", 1.0, -7.0, 0.5, 5))
    scores = {"auc": 0.62}
    lift = Lift("test", 100, scores, scores, 0.0, 0.1, "log_loss", {})
    said = network_verdict(NetFindings("jpl", (), ours), lift, "party_b").text
    assert "Asked for every prediction, A would help: on common rows the split network is 7" in said
    assert "Asked" not in network_verdict(NetFindings("jpl", (), ours[:1]), lift, "party_b").text
