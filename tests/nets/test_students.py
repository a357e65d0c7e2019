"""Students: each term does something, B alone suffices afterwards, and nothing of A's is there without A."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from common.errors import ConfigError, DataError, LocalProtocolError
from common.nets import baselines
from common.nets.recipe import Patience, Recipe, Terms
from common.nets.scores import EarlyStopping, Scores, auc_gain, calibration, probabilities, scores_of
from common.nets.shape import NetSettings, NetShape, Optimisation
from common.nets.student import Epoch, Student, StudentRows, Teacher
from tests.nets.nets_cases import two_parties

DATA = two_parties(700)
SETTINGS = NetSettings(NetShape(bottom=(16, 8), top=(8,)), Optimisation(learning_rate=0.01), 3)
SHORT = Patience(batch_size=128, most_epochs=2, patience=2)
EVERY = Terms(**{one.name: 1.0 for one in fields(Terms)})


def teacher(seed: int = 1, width: int = 5) -> Teacher:
    g = np.random.default_rng(seed)
    return Teacher(np.arange(0, 600, 2), g.normal(size=(300, width)).astype(np.float32), g.normal(size=300))


def rows(known: Teacher | None) -> StudentRows:
    return StudentRows(DATA.b, DATA.layout_b, DATA.labels, np.arange(500), np.arange(500, 700), known)


def trained(recipe: Recipe, known: Teacher | None = None, patience: Patience = SHORT) -> Student:
    return Student.train(rows(known or teacher()), SETTINGS, recipe, patience)[0]


RECIPES = {
    "local": baselines.local(),
    "fpd": baselines.fpd(),
    "jpl": baselines.jpl(),
    "jpl_without_a": baselines.jpl().untaught,
    "two": baselines.twice(baselines.jpl()),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_student_survives_its_bytes_bit_for_bit(name: str) -> None:
    student = trained(RECIPES[name])
    again = Student.from_bytes(student.to_bytes())
    assert again.to_bytes() == student.to_bytes()
    np.testing.assert_array_equal(again.logits(DATA.b), student.logits(DATA.b))


def test_the_same_seed_trains_the_same_student_and_another_seed_another() -> None:
    assert trained(RECIPES["jpl"]).to_bytes() == trained(RECIPES["jpl"]).to_bytes()
    other = Student.train(rows(teacher()), replace(SETTINGS, seed=4), RECIPES["jpl"], SHORT)[0]
    assert not np.allclose(other.logits(DATA.b), trained(RECIPES["jpl"]).logits(DATA.b))


@pytest.mark.parametrize("term", [one.name for one in fields(Terms)])
def test_switching_a_term_off_changes_the_student(term: str) -> None:
    without = replace(EVERY, **{term: 0.0})
    assert trained(Recipe(terms=without)).to_bytes() != trained(Recipe(terms=EVERY)).to_bytes()


@pytest.mark.parametrize("name", ["local", "jpl_without_a"])
def test_students_without_a_do_not_depend_on_what_the_teacher_left(name: str) -> None:
    ours, other = (trained(RECIPES[name], teacher(seed)).logits(DATA.b) for seed in (1, 2))
    np.testing.assert_array_equal(ours, other)


@pytest.mark.parametrize("name", ["fpd", "jpl"])
def test_students_with_a_do_depend_on_it(name: str) -> None:
    blind = replace(RECIPES[name], trust="blind")
    ours, other = (trained(blind, teacher(seed)).logits(DATA.b) for seed in (1, 2))
    assert not np.allclose(ours, other)


@pytest.mark.parametrize("name", ["fpd", "jpl"])
def test_a_teacher_is_followed_only_if_it_ranks_validation_rows_better_than_b_alone(name: str) -> None:
    recipe, signs = RECIPES[name], 2.0 * DATA.labels[:600:2] - 1.0
    untaught = trained(recipe.untaught)
    for strength, followed in ((3.0, True), (-3.0, False)):
        student = trained(recipe, replace(teacher(), logits=strength * signs))
        assert student.taught is followed
        assert (student.to_bytes() == untaught.to_bytes()) is not followed


def test_the_gain_in_auc_and_its_error_are_those_of_repeated_draws() -> None:
    g = np.random.default_rng(4)

    def drawn() -> tuple[float, float]:
        labels = (g.random(400) < 0.3).astype(np.float64)
        first = labels + g.normal(size=400)
        return auc_gain(labels, first, 0.7 * labels + 0.5 * first + g.normal(size=400))

    labels = np.array([0.0, 0.0, 1.0, 1.0])
    ours, theirs = np.array([0.1, 0.4, 0.4, 0.9]), np.array([0.9, 0.2, 0.1, 0.8])
    assert auc_gain(labels, ours, theirs)[0] == pytest.approx(3.5 / 4 - 1 / 4)
    gains, errors = np.array([drawn() for _ in range(400)]).T
    assert gains.std() == pytest.approx(errors.mean(), rel=0.2)
    assert np.isnan(auc_gain(np.array([0.0, 0.0, 1.0]), np.zeros(3), np.zeros(3))).all()


def test_the_factor_of_the_labels_that_does_best_on_validation_rows_is_kept() -> None:
    recipe = replace(baselines.fpd(), trust="blind", label_factors=(1.0, 0.1, 10.0))
    best = {}
    for one in recipe.tried:
        student, course = Student.train(rows(teacher()), SETTINGS, one, SHORT)
        best[one.label_factors[0]] = max(epoch.validation.auc for epoch in course), student.to_bytes()
    chosen = trained(recipe)
    assert best[chosen.label_factor] == max(best.values(), key=lambda one: one[0])
    assert chosen.to_bytes() == best[chosen.label_factor][1]
    assert len({one for _, one in best.values()}) == 3


def test_a_prediction_of_one_row_equals_that_row_of_a_batch() -> None:
    student = trained(RECIPES["jpl"])
    whole = student.probabilities(DATA.b)
    single = student.probabilities(DATA.b.take(np.array([17])))
    np.testing.assert_allclose(single, whole[17:18], rtol=1e-5)
    assert ((whole > 0) & (whole < 1)).all()


def test_two_members_average_two_students_of_which_the_first_is_the_single_one() -> None:
    both, single = trained(baselines.twice(baselines.local())), trained(baselines.local())
    first = both.first(1)
    np.testing.assert_array_equal(first.logits(DATA.b), single.logits(DATA.b))
    assert not np.allclose(both.logits(DATA.b), single.logits(DATA.b))
    with pytest.raises(LocalProtocolError):
        both.first(3)


def test_distillation_from_a_knowing_teacher_beats_b_alone() -> None:
    # The teacher knows the chance itself, on all rows: soft labels of it must help a student of 120 rows.
    g = np.random.default_rng(8)
    data = two_parties(4000, seed=9)
    truth = np.where(data.labels == 1, 2.0, -2.0)
    noisy = np.where(g.random(4000) < 0.3, 1 - data.labels, data.labels)
    known = Teacher(np.arange(600), np.zeros((600, 8), dtype=np.float32), truth[:600])
    split = StudentRows(data.b, data.layout_b, noisy, np.arange(500), np.arange(500, 600), known)
    long = Patience(batch_size=64, most_epochs=12, patience=12)
    aucs = {}
    for name, recipe in (("local", baselines.local()), ("fpd", baselines.fpd(labels_shared=0.0))):
        student, _ = Student.train(split, SETTINGS, recipe, long)
        aucs[name] = scores_of(data.labels[600:], student.logits(data.b)[600:]).auc
    assert aucs["fpd"] > aucs["local"] + 0.01


def test_a_batch_without_overlapped_rows_or_without_others_trains() -> None:
    few = Teacher(np.array([3]), np.ones((1, 4), dtype=np.float32), np.zeros(1))
    everything = Teacher(np.arange(700), np.ones((700, 4), dtype=np.float32), np.zeros(700))
    nothing = Teacher(np.empty(0, np.int64), np.ones((0, 4), dtype=np.float32), np.zeros(0))
    for known in (few, everything, nothing):
        assert np.isfinite(trained(Recipe(terms=EVERY), known).logits(DATA.b)).all()


def test_a_watcher_sees_every_epoch_and_can_end_the_training() -> None:
    seen: list[Epoch] = []

    def watch(epoch: Epoch) -> None:
        seen.append(epoch)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Student.train(rows(teacher()), SETTINGS, baselines.twice(baselines.local()), SHORT, watch)
    assert [(one.member, one.epoch) for one in seen] == [(0, 1), (0, 2), (1, 1)]


def test_what_cannot_be_trained_is_a_typed_error() -> None:
    with pytest.raises(ConfigError):
        Student.train(rows(None), SETTINGS, baselines.jpl(), SHORT)
    with pytest.raises(DataError):
        Student.train(
            replace(rows(None), validation=np.empty(0, np.int64)), SETTINGS, baselines.local(), SHORT
        )
    with pytest.raises(DataError):
        Student.train(replace(rows(None), labels=DATA.labels + 1), SETTINGS, baselines.local(), SHORT)
    bad = teacher()
    bad.representations[3, 2] = np.nan
    with pytest.raises(LocalProtocolError):
        Student.train(rows(bad), SETTINGS, baselines.jpl(), SHORT)
    twice = replace(teacher(), rows=np.zeros(300, dtype=np.int64))
    with pytest.raises(LocalProtocolError):
        Student.train(rows(twice), SETTINGS, baselines.jpl(), SHORT)
    with pytest.raises(ConfigError):
        Terms(**{one.name: 0.0 for one in fields(Terms)})
    with pytest.raises(ConfigError):
        Terms(teacher=-1.0)
    with pytest.raises(DataError):
        Student.from_bytes(b"nothing")


def scores(auc: float, loss: float = 0.5) -> Scores:
    return Scores(auc, loss, 0.0)


def test_early_stopping_keeps_the_best_epoch_and_waits_as_long_as_it_says() -> None:
    stopping = EarlyStopping(Patience(most_epochs=20, patience=2))
    assert [stopping.better(scores(auc)) for auc in (0.6, 0.7, 0.7)] == [True, True, False]
    assert not stopping.ended
    again = EarlyStopping.from_json(stopping.to_json(), Patience(most_epochs=20, patience=2))
    for one in (stopping, again):
        assert not one.better(scores(0.65))
        assert (one.ended, one.best_epoch, one.epoch) == (True, 2, 4)


def test_early_stopping_falls_back_to_the_log_loss_when_rows_lack_a_class() -> None:
    stopping = EarlyStopping(Patience())
    nan = float("nan")
    assert [stopping.better(scores(nan, loss)) for loss in (0.5, 0.6, 0.4)] == [True, False, True]


def test_patience_begins_when_the_network_beats_the_base_rate() -> None:
    stopping = EarlyStopping(Patience(most_epochs=20, patience=2))
    untrained = Scores(0.9, 0.69, 0.0, base_loss=0.5)
    for _ in range(4):
        stopping.better(untrained)
    assert not stopping.ended
    assert stopping.better(Scores(0.6, 0.49, 0.0, base_loss=0.5))
    again = EarlyStopping.from_json(stopping.to_json(), Patience(most_epochs=20, patience=2))
    for _ in range(2):
        assert not again.better(Scores(0.55, 0.51, 0.0, base_loss=0.5))
    assert (again.ended, again.best_epoch) == (True, 5)


def test_calibration_compares_predictions_with_what_happened() -> None:
    chances = np.repeat([0.1, 0.9], 500)
    labels = np.concatenate([np.arange(500) < 50, np.arange(500) < 450]).astype(np.float64)
    bins = calibration(labels, chances, 2)
    assert [(one.rows, one.predicted, one.observed) for one in bins] == [
        (500, pytest.approx(0.1), 0.1),
        (500, pytest.approx(0.9), 0.9),
    ]
    assert scores_of(labels, np.log(chances / (1 - chances))).calibration_error < 0.2
    assert probabilities(np.array([-800.0, 0.0, 800.0])).tolist() == [0.0, 0.5, 1.0]
