"""What VFB² shows: θ gives labels and scores away (a leak, shown), masked sums give nothing away."""

from __future__ import annotations

import numpy as np
import pytest

from common.crypto.secure_sum import RingFixedPoint
from tests.roles.vfb2_loop import Job, World, toy

X, Y = toy(50, 8)


def run(loss, **settings):
    """Train for two epochs; return the world and, for every update, the scores at the time."""
    world, scores = World(Job(4, 1, "saga", loss, **settings), X, Y), []
    plain = world.dominated

    def dominated(dominator):
        weights = world.weights
        update = plain(dominator)
        scores.append(X[update.rows] @ weights)
        return update

    world.dominated = dominated
    world.train(2)
    return world, scores


@pytest.mark.parametrize("loss", ["logistic", "logistic_nonconvex"])
def test_one_logistic_theta_gives_a_collaborator_the_label_and_the_score(loss):
    world, scores = run(loss)
    for update, score in zip(world.updates, scores, strict=True):
        label = -np.sign(update.thetas)
        assert np.array_equal(label, Y[update.rows])
        assert label * np.log(1 / np.abs(update.thetas) - 1) == pytest.approx(score, abs=1e-9)


@pytest.mark.parametrize("loss", ["squared", "robust"])
def test_one_theta_at_the_zero_start_gives_the_label_and_with_it_every_later_score(loss):
    """Real-valued labels, too: SVRG's first θ̃ is taken where every z is 0, and shows all labels at once."""
    targets = np.random.default_rng(1).normal(size=50)
    world, scores = World(Job(3, 1, "svrg", loss, step=0.2), X, targets), []
    plain, received = world.dominated, []
    absorb = world.roles["party_0"].collaboration.absorb_reference

    def dominated(dominator):
        weights = world.weights
        update = plain(dominator)
        scores.append(X[update.rows] @ weights)
        return update

    def tapped(part):
        received.append(part)
        absorb(part)

    world.dominated, world.roles["party_0"].collaboration.absorb_reference = dominated, tapped
    world.train(1)
    first = np.concatenate([part.thetas for part in received if part.epoch == 0])
    labels = -first if loss == "squared" else -_residuals(first)
    readable = np.ones(50, bool) if loss == "squared" else np.abs(targets) < np.sqrt(2)
    assert labels[readable] == pytest.approx(targets[readable], abs=1e-9)
    if loss == "squared":
        for update, score in zip(world.updates, scores, strict=True):
            assert update.thetas + labels[update.rows] == pytest.approx(score, abs=1e-9)


def _residuals(thetas):
    """Return the u of θ = u / (1 + u²/2) that is below √2 in magnitude; there is another one above."""
    return 2 * thetas / (1 + np.sqrt(np.maximum(1 - 2 * thetas**2, 0)))


@pytest.mark.parametrize("aggregation", ["flat", "binomial", "pairwise"])
def test_no_party_but_the_root_finds_a_score_in_the_words_it_receives(aggregation):
    world, _ = run("logistic", aggregation=aggregation)
    scale = RingFixedPoint(40, 4)
    for receiver in world.job.names:
        words = [words for _, to, _, _, words in world.wire if to == receiver]
        if not words:
            continue
        seen = np.concatenate(words)
        assert len(np.unique(seen)) == len(seen)
        # Scores are below 2 in magnitude: a word that shows one lies near zero, by chance one in 2^22 does.
        assert (np.abs(seen.view(np.int64)) < 2 * 2**scale.scale_bits).sum() <= 1
        counts = np.bincount((seen >> np.uint64(60)).astype(np.int64), minlength=16)
        expected = len(seen) / 16
        assert ((counts - expected) ** 2 / expected).sum() < 48  # 6 sigma for 15 degrees


def test_the_root_gets_scores_only_as_their_sum():
    world, _ = run("logistic", aggregation="flat")
    by_request = {}
    for sender, receiver, tree, request, words in world.wire:
        if receiver == "party_3":
            by_request.setdefault(request.number, []).append((tree, sender, words))
    for received in by_request.values():
        assert sorted(tree for tree, *_ in received) == ["T1", "T1", "T1", "T2"]
        (mask_sum,) = (words for tree, _, words in received if tree == "T2")
        for tree, _, words in received:
            if tree == "T1":  # no single party's masked words are opened by the one sum of masks it has
                assert np.abs((words - mask_sum).view(np.int64)).min() > 2**41
