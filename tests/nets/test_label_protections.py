"""The attacks read labels from bare gradients, and fail where a protection is in place: drop it, and these
tests fail."""

from __future__ import annotations

import numpy as np
import pytest

from common.errors import ConfigError
from common.nets.attacks import GradientAttacks, LabelLeak, direction_scores, leak_auc, norm_attack
from common.nets.batches import epoch_batches
from common.nets.marvell import noise_powers
from common.nets.protect import LabelDP, Marvell, MaxNorm, NoProtection, Protection, Release
from common.nets.shape import NetSettings, NetShape, Optimisation
from common.nets.split import ActiveNetwork, PassiveNetwork
from tests.nets.nets_cases import two_parties

DATA = two_parties(1200)
RARE = DATA.labels * (np.random.default_rng(0).random(1200) < 0.4)
SETTINGS = NetSettings(NetShape(bottom=(16, 8), top=(8,)), Optimisation(learning_rate=0.01))


def leak(protection: Protection, epochs: int = 3) -> LabelLeak:
    """Train as A and B do; return what A reads of B's true labels."""
    passive = PassiveNetwork(DATA.a, DATA.layout_a, SETTINGS)
    active = ActiveNetwork(DATA.b, RARE, DATA.layout_b, SETTINGS, ("a",), protection)
    attacks = GradientAttacks(RARE)
    for epoch in range(epochs):
        for rows in epoch_batches(1200, 150, 1, epoch):
            step = active.step(rows, {"a": passive.forward(rows)})
            passive.backward(rows, step.gradients["a"])
            attacks.watch(rows, step.gradients["a"])
    return attacks.result()


def test_bare_gradients_tell_the_labels() -> None:
    found = leak(NoProtection())
    assert found.norm > 0.72
    assert found.direction > 0.95
    assert found.batches == 24


def test_max_norm_hides_norms() -> None:
    found = leak(MaxNorm(5))
    assert found.norm < 0.64
    assert found.direction < 0.9


def test_marvell_hides_norm_and_direction_the_better_the_more_noise() -> None:
    weak, strong = leak(Marvell(0.2, 5)), leak(Marvell(8.0, 5))
    assert strong.norm < 0.64
    assert strong.direction < 0.7
    assert strong.direction < weak.direction


def test_fresh_noise_averages_out_over_epochs_but_flipped_labels_stay_flipped() -> None:
    noisy = leak(Marvell(2.0, 5), epochs=10)
    assert noisy.over_epochs > noisy.direction + 0.05
    flipped = leak(LabelDP(0.5, 5), epochs=10)
    # An attacker that learns every flipped label exactly is right as often as the flip probability says.
    assert flipped.over_epochs < 1.0 - LabelDP(0.5, 5).flip_probability + 0.04


def test_label_dp_flips_each_label_once_with_its_probability() -> None:
    labels = np.zeros(200_000)
    for epsilon in (0.5, 1.0, 3.0):
        protection = LabelDP(epsilon, 7)
        flipped = protection.labels(labels)
        wanted = 1 / (1 + np.exp(epsilon))
        assert flipped.mean() == pytest.approx(wanted, abs=5 * np.sqrt(wanted / 200_000))
        np.testing.assert_array_equal(protection.labels(labels), flipped)
    assert not np.array_equal(LabelDP(1.0, 7).labels(labels), LabelDP(1.0, 8).labels(labels))


def test_a_network_behind_label_dp_never_sees_a_true_label_that_was_flipped() -> None:
    flipped = LabelDP(0.5, 5).labels(RARE)
    direct = ActiveNetwork(DATA.b, flipped, DATA.layout_b, SETTINGS, ("a",))
    behind = ActiveNetwork(DATA.b, RARE, DATA.layout_b, SETTINGS, ("a",), LabelDP(0.5, 5))
    rows, h = np.arange(100), np.ones((100, 8), dtype=np.float32)
    ours, theirs = behind.step(rows, {"a": h}), direct.step(rows, {"a": h})
    np.testing.assert_array_equal(ours.gradients["a"], theirs.gradients["a"])
    assert behind.to_bytes() == direct.to_bytes()


def test_max_norm_brings_every_row_to_the_largest_expected_norm() -> None:
    g = np.random.default_rng(2)
    gradient = (g.normal(size=(6, 4)) * [[0.1], [1], [2], [0.5], [3], [0]]).astype(np.float32)
    squares = [
        np.square(MaxNorm(9).gradient(gradient, np.zeros(6), step, "a")).sum(axis=1) for step in range(20_000)
    ]
    largest = np.square(gradient).sum(axis=1).max()
    np.testing.assert_allclose(np.mean(squares, axis=0)[:5], largest, rtol=0.06)
    assert np.mean(squares, axis=0)[5] == 0


def test_marvell_spends_the_power_it_was_given_and_brings_the_classes_together() -> None:
    g = np.random.default_rng(3)
    labels = (g.random(400) < 0.25).astype(np.float64)
    gradient = (g.normal(size=(400, 6)) * 0.05 + labels[:, None] * 0.5).astype(np.float32)
    difference = gradient[labels == 1].mean(axis=0) - gradient[labels == 0].mean(axis=0)
    allowed = 2.0 * float(difference @ difference)
    noise = [
        Marvell(2.0, 4).gradient(gradient, labels, step, "a").astype(float) - gradient for step in range(200)
    ]
    assert np.mean([np.square(one).sum(axis=1).mean() for one in noise]) == pytest.approx(allowed, rel=0.05)
    powers = noise_powers(gradient.astype(float), labels > 0.5, 2.0)
    assert powers.along_0 > powers.across_0
    assert np.linalg.norm(powers.direction) == pytest.approx(1.0)


@pytest.mark.parametrize("labels", [np.zeros(5), np.ones(5), np.array([1.0, 0, 0, 0, 0])])
@pytest.mark.parametrize("gradient", [np.zeros((5, 3)), np.ones((5, 3)) * 1e-20, np.eye(5, 3)])
def test_protections_stay_finite_on_odd_batches(labels: np.ndarray, gradient: np.ndarray) -> None:
    for protection in (MaxNorm(1), Marvell(4.0, 1), LabelDP(1.0, 1), NoProtection()):
        sent = protection.gradient(gradient.astype(np.float32), labels, 0, "a")
        assert sent.shape == gradient.shape
        assert sent.dtype == np.float32
        assert np.isfinite(sent).all()


def test_noise_depends_on_the_secret_step_receiver_and_gradient_and_on_nothing_else() -> None:
    gradient, labels = np.ones((8, 4), dtype=np.float32), np.arange(8) % 2.0
    gradient[::2] *= 3
    for kind in (MaxNorm, lambda secret: Marvell(4.0, secret)):
        first = kind(1).gradient(gradient, labels, 3, "a")
        np.testing.assert_array_equal(kind(1).gradient(gradient, labels, 3, "a"), first)
        for other in ((2, 3, "a"), (1, 4, "a"), (1, 3, "b")):
            assert not np.array_equal(kind(other[0]).gradient(gradient, labels, *other[1:]), first)


def test_a_step_that_is_repeated_with_another_gradient_does_not_repeat_its_noise() -> None:
    """A sends other representations after a loss: with the same noise it would read the difference."""
    gradient, labels = np.ones((8, 4), dtype=np.float32), np.arange(8) % 2.0
    gradient[::2] *= 3
    moved = gradient * np.float32(1 + 1e-6)
    for kind in (MaxNorm(1), Marvell(4.0, 1)):
        difference = kind.gradient(moved, labels, 3, "a") - kind.gradient(gradient, labels, 3, "a")
        assert np.abs(difference).max() > 0.1


def test_representations_of_another_epoch_or_of_other_rows_do_not_repeat_their_noise() -> None:
    """Else B would read how every row moves between two epochs, and how new rows differ from old ones."""
    release, bare, rows = Release(clip=1.0, noise=0.5, secret=3), Release(clip=1.0), np.arange(600)
    blurred, plain = (PassiveNetwork(DATA.a, DATA.layout_a, SETTINGS, one) for one in (release, bare))
    noises = [blurred.represent(rows) - plain.represent(rows)]
    for network in (blurred, plain):
        network.forward(np.arange(50))
        network.backward(np.arange(50), np.full((50, 8), 1e-3, dtype=np.float32))
    noises.append(blurred.represent(rows) - plain.represent(rows))
    again = PassiveNetwork.from_bytes(plain.weights_to_bytes(), DATA.a.take(rows[::-1]), release)
    noises.append(again.represent(rows) - plain.represent(rows[::-1]))
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert abs(np.corrcoef(noises[one].ravel(), noises[other].ravel())[0, 1]) < 0.1


def test_settings_of_protections_out_of_range_are_config_errors() -> None:
    for make in (
        lambda: LabelDP(0.0, 1),
        lambda: Marvell(-1.0, 1),
        lambda: Release(clip=0.0),
        lambda: Release(noise=0.1),
        lambda: Release(clip=1.0, noise=-1.0),
    ):
        with pytest.raises(ConfigError):
            make()


def test_clipped_representations_keep_their_bound_and_learn_through_it() -> None:
    passive = PassiveNetwork(DATA.a, DATA.layout_a, SETTINGS, Release(clip=0.01))
    rows = np.arange(64)
    h = passive.forward(rows)
    assert np.linalg.norm(h, axis=1).max() <= 0.01 + 1e-6
    before = passive.represent(rows)
    passive.backward(rows, np.ones_like(h))
    assert not np.array_equal(before, passive.represent(rows))


def test_noise_on_representations_is_new_in_training_and_always_the_same_when_handed_over() -> None:
    release = Release(clip=1.0, noise=0.5, secret=3)
    passive = PassiveNetwork(DATA.a, DATA.layout_a, SETTINGS, release)
    plain = PassiveNetwork(DATA.a, DATA.layout_a, SETTINGS, Release(clip=1.0))
    rows = np.arange(1200)
    first, again = passive.represent(rows), passive.represent(rows)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(passive.represent(rows[::-7].copy()), first[::-7])
    assert (first - plain.represent(rows)).std() == pytest.approx(0.5, rel=0.05)
    batch = np.arange(50)
    sent = []
    for _ in range(2):
        sent.append(passive.forward(batch))
        passive.backward(batch, np.zeros((50, 8), dtype=np.float32))
    assert (sent[0] - sent[1]).std() > 0.5


def test_the_attacks_scores_are_norms_and_cosines() -> None:
    gradient = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]], dtype=np.float32)
    assert direction_scores(gradient, gradient[:1]).tolist() == pytest.approx([1.0, 0.6, 0.0])
    assert norm_attack(gradient, np.array([1.0, 0.0, 0.0])) == 1.0
    assert leak_auc(np.array([0.0, 1.0]), np.array([2.0, 1.0])) == 1.0
    assert leak_auc(np.array([0.0, 1.0, 0.0, 1.0]), np.ones(4)) == 0.5
    assert np.isnan(leak_auc(np.ones(3), np.arange(3.0)))
