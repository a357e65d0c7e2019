"""Masked sums: exact for the root, uniform for everybody else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.crypto.aggregation_trees import plan_trees, star
from common.crypto.entropy import SeededEntropy, SystemEntropy
from common.crypto.pairwise_masks import AgreementKey
from common.crypto.secure_sum import (
    OpenShares,
    PairwiseScheme,
    RingFixedPoint,
    TreeScheme,
    fresh_masks,
    words_from_bytes,
    words_to_bytes,
)
from common.errors import LocalProtocolError, NumericError, RemoteProtocolError

SCHEMES = pytest.mark.parametrize("scheme", ["flat", "binomial", "pairwise"])
ROOT = "party_0"


def schemes(kind, count, roots=(ROOT,)):
    """Return the scheme of every party."""
    parties = [f"party_{index}" for index in range(count)]
    scale = RingFixedPoint(40, count)
    if kind != "pairwise":
        pairs = {root: plan_trees(parties, root, kind) for root in roots}
        return {p: TreeScheme(p, pairs, scale, SeededEntropy(p.encode())) for p in parties}
    keys = {p: AgreementKey(SeededEntropy(p.encode())) for p in parties}
    trees = {root: star(parties, root) for root in roots}
    made = {}
    for party in parties:
        peers = {peer: keys[peer].public for peer in parties if peer != party}
        made[party] = PairwiseScheme(party, trees, scale, keys[party].seeds(party, b"job", peers))
    return made


def begin(made, number, length, root=ROOT):
    return {party: scheme.begin(root, number, length) for party, scheme in made.items()}


def run(shares):
    """Algorithm 1, steps 4 and 5; what crosses crosses as bytes. Returns what every party was sent."""
    (root,) = (party for party, share in shares.items() if share.parent("T1") is None)
    seen = {party: [] for party in shares}
    for tree in shares[root].trees:
        waiting = [party for party in shares if party != root]
        while waiting:
            party = next(p for p in waiting if shares[p].complete(tree))
            parent = shares[party].parent(tree)
            words = words_from_bytes(words_to_bytes(shares[party].partial_sum(tree)), shares[party].length)
            shares[parent].absorb(tree, party, words)
            seen[parent].append((tree, party, words))
            waiting.remove(party)
    return root, seen


@SCHEMES
@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_the_root_gets_the_sum_exactly(scheme, count):
    scores = np.random.default_rng(count).normal(size=(count, 7)) * 1000
    shares = begin(schemes(scheme, count), 1, 7)
    for share, own in zip(shares.values(), scores, strict=True):
        share.contribute(own)
    root, _ = run(shares)
    rounded = np.rint(scores * 2.0**40).sum(axis=0) / 2.0**40
    assert np.array_equal(shares[root].opened(), rounded)
    assert np.abs(shares[root].opened() - scores.sum(axis=0)).max() <= RingFixedPoint(40, count).error


@settings(max_examples=40)
@given(
    values=st.lists(st.floats(-1e5, 1e5), min_size=3, max_size=3),
    number=st.integers(1, 2**63),
    root=st.integers(0, 2),
)
def test_any_finite_scores_sum_exactly_whatever_the_number_of_the_request(values, number, root):
    for kind in ("flat", "pairwise"):
        shares = begin(schemes(kind, 3, [f"party_{root}"]), number, 1, f"party_{root}")
        for share, value in zip(shares.values(), values, strict=True):
            share.contribute(np.array([value]))
        arrived, _ = run(shares)
        assert shares[arrived].opened()[0] == sum(round(v * 2**40) for v in values) / 2**40


@SCHEMES
def test_masked_scores_of_a_constant_are_uniform(scheme):
    # Chi-square over 256 values of the highest and of the lowest octet; 400 is 6 sigma for 255 degrees.
    made, samples = schemes(scheme, 3), []
    share = made["party_2"].begin(ROOT, 9, 40_000)
    share.contribute(np.full(40_000, 1.25))
    samples = share.partial_sum("T1")
    for octet in (samples >> np.uint64(56), samples & np.uint64(255)):
        counts = np.bincount(octet.astype(np.int64), minlength=256)
        expected = len(samples) / 256
        assert ((counts - expected) ** 2 / expected).sum() < 400


@SCHEMES
def test_requests_and_roots_share_no_mask(scheme):
    made = schemes(scheme, 3, ["party_0", "party_1"])
    words = []
    for root, number in (("party_0", 1), ("party_0", 2), ("party_1", 1)):
        share = made["party_2"].begin(root, number, 50)
        share.contribute(np.zeros(50))
        words.append(share.partial_sum("T1") if share.complete("T1") else share._mask)
    assert len({int(word) for vector in words for word in vector}) == 150


def test_masks_use_all_64_bits_of_the_entropy_they_are_given():
    masks = fresh_masks(SystemEntropy(), 4000)
    ones = [int(((masks >> np.uint64(bit)) & np.uint64(1)).sum()) for bit in range(64)]
    assert min(ones) > 1750
    assert max(ones) < 2250
    assert fresh_masks(SystemEntropy(), 0).shape == (0,)


@pytest.mark.parametrize("count", [3, 4, 6])
def test_pairwise_masks_hide_two_scores_from_all_others_together(count):
    # All parties but two pool their seeds; what is left of the masks is the seed between those two.
    parties = [f"party_{index}" for index in range(count)]
    keys = {p: AgreementKey(SeededEntropy(p.encode())) for p in parties}
    masks, known = {}, np.zeros(20, dtype=np.uint64)
    for party in parties:
        peers = {peer: keys[peer].public for peer in parties if peer != party}
        masks[party] = keys[party].seeds(party, b"job", peers).mask(ROOT, 3, 20)
    for colluder in parties[:-2]:
        only = {parties[-2]: keys[parties[-2]].public}
        known = known - keys[colluder].seeds(colluder, b"job", only).mask(ROOT, 3, 20)
    residual = masks[parties[-2]] - known
    between = keys[parties[-2]].seeds(parties[-2], b"job", {parties[-1]: keys[parties[-1]].public})
    assert np.array_equal(residual, between.mask(ROOT, 3, 20))
    assert residual.any()
    assert not np.add.reduce(list(masks.values())).any()


def test_a_job_a_session_and_a_root_have_seeds_of_their_own():
    one, two, other = (AgreementKey(SeededEntropy(seed)) for seed in (b"1", b"2", b"3"))
    masks = [
        one.seeds("a", b"job", {"b": two.public}).mask("b", 1, 4),
        one.seeds("a", b"another job", {"b": two.public}).mask("b", 1, 4),
        other.seeds("a", b"job", {"b": two.public}).mask("b", 1, 4),
        one.seeds("a", b"job", {"b": two.public}).mask("a", 1, 4),
    ]
    assert len({int(word) for mask in masks for word in mask}) == 16


@pytest.mark.parametrize("key", [b"", b"short", bytes(32)], ids=["empty", "short", "small order"])
def test_keys_that_agree_on_nothing_are_refused(key):
    with pytest.raises(RemoteProtocolError, match="public key of 'b'"):
        AgreementKey(SeededEntropy(b"1")).seeds("a", b"job", {"b": key})


def test_a_mask_serves_one_contribution():
    share = schemes("flat", 3)["party_1"].begin(ROOT, 1, 2)
    share.contribute(np.zeros(2))
    with pytest.raises(LocalProtocolError, match="serves one contribution"):
        share.contribute(np.ones(2))


def test_a_repeated_request_finds_the_words_it_had_and_an_old_one_nothing():
    shares = OpenShares(schemes("pairwise", 3)["party_1"], window=3)
    first = shares.requested(ROOT, 5, 2)
    assert shares.requested(ROOT, 5, 2) is shares.awaited(ROOT, 5, 2) is first
    assert shares.requested(ROOT, 4, 2) is not first
    with pytest.raises(RemoteProtocolError, match="another length"):
        shares.requested(ROOT, 5, 3)
    shares.requested(ROOT, 8, 2)
    for old in (5, 4, 0, 2**64):
        with pytest.raises(RemoteProtocolError, match="too old"):
            shares.requested(ROOT, old, 2)
    with pytest.raises(RemoteProtocolError, match="not a root"):
        shares.requested("party_2", 1, 2)


def test_a_child_cannot_make_the_roots_requests_look_old_nor_fill_the_memory():
    shares = OpenShares(schemes("flat", 3)["party_1"], window=3)
    for number in (10**9, 10**9 + 1, 10**9 + 2):
        shares.awaited(ROOT, number, 1)
    with pytest.raises(RemoteProtocolError, match="more requests"):
        shares.awaited(ROOT, 10**9 + 3, 1)
    assert shares.requested(ROOT, 1, 1).length == 1


def test_an_incomplete_sum_is_not_passed_on():
    made = schemes("binomial", 4)
    shares = begin(made, 1, 1)
    middle = next(
        share for share in shares.values() if share.parent("T1") == ROOT and not share.complete("T1")
    )
    with pytest.raises(LocalProtocolError, match="not complete"):
        middle.partial_sum("T1")
    with pytest.raises(LocalProtocolError, match="not complete"):
        shares[ROOT].opened()
    with pytest.raises(LocalProtocolError, match="not the root"):
        middle.opened()


def test_masks_may_travel_before_there_are_scores():
    shares = begin(schemes("flat", 4), 1, 1)
    leaf = next(share for share in shares.values() if share.complete("T2") and share.parent("T2"))
    assert not leaf.contributed
    assert leaf.partial_sum("T2").shape == (1,)


def test_only_children_are_listened_to_and_only_to_one_answer():
    shares = begin(schemes("flat", 3), 1, 2)
    root = shares[ROOT]
    words = np.array([1, 2], dtype=np.uint64)
    root.absorb("T1", "party_1", words)
    root.absorb("T1", "party_1", words)
    with pytest.raises(RemoteProtocolError, match="two different partial sums"):
        root.absorb("T1", "party_1", words + words)
    with pytest.raises(RemoteProtocolError, match="not a child"):
        root.absorb("T2", "party_2", words)
    with pytest.raises(RemoteProtocolError, match="3 words for a sum of 2"):
        root.absorb("T1", "party_2", np.zeros(3, dtype=np.uint64))
    with pytest.raises(RemoteProtocolError, match="15 bytes came"):
        words_from_bytes(bytes(15), 2)
    with pytest.raises(LocalProtocolError, match="3 scores for a sum of 2"):
        root.contribute(np.zeros(3))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**23 / 3, -(2.0**23)])
def test_scores_that_could_wrap_around_are_refused(value):
    with pytest.raises(NumericError, match="number to be summed"):
        RingFixedPoint(40, 3).encode(np.array([0.0, value]))


@given(values=st.lists(st.floats(-2.7e6, 2.7e6), max_size=5))
def test_a_coded_score_comes_back_within_half_a_unit(values):
    scale = RingFixedPoint(40, 3)
    decoded = scale.decode(scale.encode(np.array(values, dtype=np.float64)))
    assert np.abs(decoded - values).max(initial=0.0) <= 2.0**-41
