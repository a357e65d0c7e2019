"""VFB² on captured bytes: masked words show nobody a score, and plain θ shows everybody label and score."""

from __future__ import annotations

import numpy as np
import pytest

from common.crypto.secure_sum import DEFAULT_SCALE_BITS
from tests.attacks.vfb2_world import COLUMNS, captured, job_of, words_of


@pytest.fixture(scope="module", params=["flat", "binomial", "pairwise"])
def wire(request, tmp_path_factory):
    """Return the wire of a job of four parties under one of the three kinds of sums."""
    kind = request.param
    train = {"aggregation": "pairwise"} if kind == "pairwise" else {"tree_shape": kind}
    return captured(tmp_path_factory.mktemp(kind), job_of(train=train))


def readable(words):
    """Return how many words lie where a score would: near zero, where one word in 2^20 lies by chance."""
    return int((np.abs(words.view(np.int64)) < 8 * 2**DEFAULT_SCALE_BITS).sum())


def test_the_words_that_a_party_receives_are_uniform_and_none_comes_twice(wire):
    for party in COLUMNS:
        # A sum that is sent again, after a stream broke, is the same one: each counts once.
        vectors = {
            (sender, root, one.number, one.tree): words_of(one) for sender, root, one in wire.sums(party)
        }
        if not vectors:
            continue
        seen = np.concatenate(list(vectors.values()))
        assert len(seen) > 200
        assert len(np.unique(seen)) == len(seen)
        assert readable(seen) <= 1
        for shift in (0, 60):
            counts = np.bincount(((seen >> np.uint64(shift)) & np.uint64(15)).astype(np.int64), minlength=16)
            expected = len(seen) / 16
            # With 15 degrees of freedom, once in 10^10 by chance; unmasked scores give thousands.
            assert ((counts - expected) ** 2 / expected).sum() < 80


def test_no_two_words_of_one_request_open_each_other_for_a_single_party(wire):
    """Differences of all vectors that one party received of one request: none is a party's scores."""
    for party in COLUMNS:
        by_request = {}
        for sender, root, one in wire.sums(party):
            by_request.setdefault((root, one.number), {})[sender, one.tree] = words_of(one)
        for (root, _), vectors in by_request.items():
            keys = list(vectors)
            for at, left in enumerate(keys):
                for right in keys[:at]:
                    if party == root:
                        continue  # the root's sum of everybody is what it may know
                    assert readable(vectors[left] - vectors[right]) <= 1


def test_with_two_parties_the_active_one_reads_the_others_scores_whatever_the_masks(tmp_path):
    """The attack that nothing can prevent, and that the report tells of: T1 − T2 is the other's scores."""
    wire = captured(tmp_path / "two", job_of(active="party_b", passive=["party_a"]))
    vectors = {}
    for _, _, one in wire.sums("party_b"):
        vectors.setdefault(one.number, {})[one.tree] = words_of(one)
    opened = [
        (pair[1] - pair[2]).view(np.int64) / 2.0**DEFAULT_SCALE_BITS
        for pair in vectors.values()
        if len(pair) == 2
    ]
    late = [scores for scores in opened if len(scores) == len(wire.held.labels)][-1]
    columns = wire.held.columns["party_a"]
    weights, *_ = np.linalg.lstsq(columns, late, rcond=None)
    assert np.abs(columns @ weights - late).max() < 1e-9
    assert np.abs(late).max() > 1e-3


@pytest.mark.parametrize("party", ["party_a", "party_a2", "party_b2"])
def test_plain_theta_gives_every_collaborator_label_and_score(wire, party):
    """`theta: plain` says so in the leaks; this shows that it is true: nobody may claim otherwise."""
    seen = 0
    for update in wire.updates(party):
        rows = np.frombuffer(update.rows, "<u4").astype(np.int64)
        thetas = np.frombuffer(update.thetas, "<f8")
        labels = -np.sign(thetas)
        assert np.array_equal(labels, wire.held.labels[rows])
        scores = labels * np.log(1 / np.abs(thetas) - 1)
        again = -labels / (1 + np.exp(labels * scores))
        assert np.abs(again - thetas).max() < 1e-12
        seen += len(rows)
    assert seen > len(wire.held.labels)


def test_the_first_reference_of_svrg_gives_every_label_at_once(wire):
    first = wire.reference("party_a", 0)
    assert np.array_equal(-2 * first, wire.held.labels)
