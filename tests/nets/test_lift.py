"""What is said about A's worth follows from paired differences, and no more is said than they show."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_rel

from common.errors import DataError
from common.nets.baselines import ablations, methods
from common.nets.comparison import Trial, run_trial
from common.nets.lift import Difference, Outcome, half_width, mean_auc, paired, verdict
from common.nets.pooled import Half
from common.nets.recipe import Patience
from common.nets.scores import Scores
from common.nets.shape import NetSettings, NetShape, Optimisation
from common.nets.student import StudentRows, Teacher
from common.nets.teaching import Guarding, SharedRows, teach
from tests.nets.nets_cases import two_parties

G = np.random.default_rng(6)
LOCAL, JPL = 0.6 + G.normal(0, 0.01, 8), 0.61 + G.normal(0, 0.01, 8)


def outcomes() -> list[Outcome]:
    pairs = [("local", LOCAL), ("jpl", JPL)]
    return [Outcome(name, at, 0.8, Scores(auc, 0, 0)) for name, aucs in pairs for at, auc in enumerate(aucs)]


def test_the_interval_is_the_paired_t_interval() -> None:
    found = paired(outcomes(), "jpl", "local", 0.8)
    interval = ttest_rel(JPL, LOCAL).confidence_interval(0.95)
    assert found.mean - found.half_width == pytest.approx(100 * interval.low)
    assert found.mean + found.half_width == pytest.approx(100 * interval.high)
    assert found.seeds == 8
    assert mean_auc(outcomes(), "jpl", 0.8) == pytest.approx(JPL.mean())


def test_only_seeds_and_overlaps_that_both_methods_have_are_compared() -> None:
    some = [one for one in outcomes() if one.method == "local" or one.seed < 3]
    some.append(Outcome("jpl", 7, 0.2, Scores(0.99, 0, 0)))
    assert paired(some, "jpl", "local", 0.8).seeds == 3
    with pytest.raises(DataError):
        paired(some, "jpl", "fpd", 0.8)
    assert np.isnan(half_width(np.array([1.0])))


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (Difference(0.5, 0.2, 5), "A is worth it"),
        (Difference(-0.5, 0.2, 5), "A is not worth it"),
        (Difference(0.5, 0.6, 5), "no difference is shown"),
        (Difference(5.0, float("nan"), 1), "one seed shows nothing"),
    ],
)
def test_the_verdict_claims_only_what_the_interval_shows(difference: Difference, words: str) -> None:
    assert words in verdict({"local_twice": difference})[0]


def test_a_trial_runs_every_method_and_ablation() -> None:
    data = two_parties(500)
    shape = NetShape(bottom=(8, 4), top=(4,))
    settings = NetSettings(shape, Optimisation(learning_rate=0.01), 1)
    patience = Patience(batch_size=128, most_epochs=2, patience=1)
    shared = SharedRows(
        Half(data.b, data.layout_b, settings),
        {"a": Half(data.a, data.layout_a, settings)},
        data.labels,
        np.arange(200),
        np.arange(200, 300),
    )
    seen: list[int] = []
    taught = teach(shared, patience, 1, Guarding(watch=lambda rows, sent: seen.append(len(sent["a"]))))
    assert len(seen) == taught.epochs * round(200 / 128)
    assert taught.representations.shape == (500, 4)
    teacher = Teacher(np.arange(300), taught.representations[:300], taught.logits[:300])
    rows = StudentRows(data.b, data.layout_b, data.labels, np.arange(350), np.arange(350, 420), teacher)
    trial = Trial(1, 0.8, rows, np.arange(420, 500), settings, patience)
    recipes = methods() | ablations(methods()["jpl"])
    with ThreadPoolExecutor(1) as executor:
        found = run_trial(trial, recipes, executor)
    assert [one.method for one in found] == list(recipes)
    assert all(0 <= one.test.auc <= 1 for one in found)


def test_distillation_weighs_labels_and_checks_its_teacher_as_the_job_says_for_jpl() -> None:
    own = replace(methods()["jpl"], label_factors=(2.0,), trust="blind")
    for name in ("fpd", "fpd_twice", "jpl", "jpl_twice"):
        assert methods(own)[name].label_factors == (2.0,)
        assert methods(own)[name].trust == "blind"
    assert methods()["fpd"].trust == "checked"
    assert all(not methods(own)[name].needs_teacher for name in ("local", "jpl_without_a"))
