"""The two aggregation trees: what they hide, from whom, and which pairs are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.crypto.aggregation_trees import (
    Tree,
    TreePair,
    colluding_readers,
    describe_hiding,
    plan_trees,
    require_hidden,
    shared_subtrees,
)
from common.crypto.entropy import SeededEntropy
from common.crypto.linear_forms import LinearForm, mask_free, rank, spanned_by
from common.crypto.secure_sum import RingFixedPoint, TreeScheme
from common.errors import LocalProtocolError, Refused

SHAPES = pytest.mark.parametrize("shape", ["flat", "binomial"])
NAMES = st.sets(st.text("abcxyz_0189", min_size=1, max_size=6), min_size=2, max_size=9)


def named(count):
    return [f"party_{index:02}" for index in range(count)]


def tree(root, **parents):
    return Tree(root, parents)


@SHAPES
@pytest.mark.parametrize("count", range(2, 20))
def test_every_party_passes_the_span_test_and_no_subtree_is_in_both_trees(shape, count):
    parties = named(count)
    for root in parties[:: max(1, count // 3)]:
        pair = plan_trees(parties, root, shape)
        assert pair.root == root
        assert set(pair.parties) == set(parties)
        assert not any(pair.exposed_to({party}) for party in parties)
        assert count == 2 or not shared_subtrees(pair)


@SHAPES
@pytest.mark.parametrize("count", [3, 4, 8])
def test_the_root_learns_the_sum_alone_and_the_others_nothing_but_their_own(shape, count):
    pair = plan_trees(named(count), "party_00", shape)
    assert rank(pair.learns({pair.root})) == 2
    assert spanned_by([[1] * count], pair.learns({pair.root}))
    for party in pair.parties[1:]:
        own = [int(other == party) for other in pair.parties]
        assert rank(pair.learns({party})) == 1
        assert spanned_by([own], pair.learns({party}))


@SHAPES
@given(names=NAMES, seed=st.integers(0, 100))
def test_only_names_decide_and_in_any_order_of_them(shape, names, seed):
    ordered = sorted(names)
    root = ordered[seed % len(ordered)]
    shuffled = list(np.random.default_rng(seed).permutation(ordered))
    assert plan_trees(shuffled, root, shape) == plan_trees(ordered, root, shape)


@SHAPES
@pytest.mark.parametrize("count", range(2, 24))
def test_masks_that_do_not_cancel_over_the_rationals_do_not_modulo_two_either(shape, count):
    pair = plan_trees(named(count), "party_00", shape)
    for party in pair.parties:
        rows = [form.masks for form in pair.held_by({party})]
        packed = [int("".join(map(str, row)), 2) for row in rows]
        basis: list[int] = []
        for row in packed:
            for vector in basis:
                row = min(row, row ^ vector)
            if row:
                basis.append(row)
        assert len(basis) == rank(rows)


def test_depth_grows_with_the_logarithm_of_the_parties():
    pair = plan_trees(named(16), "party_00", "binomial")
    assert max(pair.scores.depth(party) for party in pair.parties) == 4
    assert max(pair.masks.depth(party) for party in pair.parties) == 4
    assert max(plan_trees(named(16), "party_00", "flat").scores.depth(party) for party in named(16)) == 1


def test_the_same_tree_twice_leaks_and_is_refused():
    star = tree("b", a1="b", a2="b", a3="b")
    pair = TreePair(star, star)
    assert rank(pair.learns({"b"})) == 4
    with pytest.raises(Refused, match="let 'b' compute other parties' scores"):
        require_hidden(pair)


def test_a_subtree_in_both_trees_leaks_its_sum_and_is_refused():
    pair = TreePair(tree("b", a1="b", a2="a1", a3="b"), tree("b", a2="b", a1="a2", a3="b"))
    assert pair.exposed_to({"b"})
    with pytest.raises(Refused, match="a1, a2 form a subtree of both"):
        require_hidden(pair)


def test_totally_different_is_not_enough_the_span_test_is_needed():
    # a1 gets u + δ of a2 in one tree and δ of a2 in the other; single parties are no subtree.
    pair = TreePair(tree("b", a1="b", a2="a1", a3="a1", a4="b"), tree("b", a1="b", a2="a1", a4="b", a3="a4"))
    assert not shared_subtrees(pair)
    assert pair.exposed_to({"a1"})
    with pytest.raises(Refused, match="let 'a1' compute"):
        require_hidden(pair)


@pytest.mark.parametrize("party", ["a1", "b"])
def test_nobody_takes_part_in_sums_over_trees_that_show_more_than_the_sum(party):
    good = plan_trees(["a1", "a2", "a3", "b"], "b", "flat")
    for bad in (TreePair(good.scores, good.scores), TreePair(good.masks, good.masks)):
        with pytest.raises(Refused, match=r"compute other parties' scores|form a subtree of both"):
            TreeScheme(party, {"b": good, "a1": bad}, RingFixedPoint(40, 4), SeededEntropy(b"x"))
    TreeScheme(party, {"b": good}, RingFixedPoint(40, 4), SeededEntropy(b"x"))


def test_with_two_parties_nothing_can_be_hidden_and_it_says_so():
    pair = plan_trees(["party_a", "party_b"], "party_b", "flat")
    assert not pair.hides_scores
    assert rank(pair.learns({"party_b"})) == 2
    assert describe_hiding(pair) == (
        "with two parties no aggregation can hide anything: party_b learns the scores of party_a as the sum "
        "without its own"
    )


def test_the_description_names_those_who_could_compute_more_together():
    pair = plan_trees(named(5), "party_00", "flat")
    first = next(colluding_readers(pair, 2))
    assert "party_00" in first
    assert f"{first[0]} and {first[1]} could compute more together" in describe_hiding(pair)
    assert describe_hiding(plan_trees(named(3), "party_00", "flat")) == (
        "party_00 learns the sum of all scores, the others learn nothing"
    )


def test_trees_that_do_not_arrive_are_no_trees():
    with pytest.raises(LocalProtocolError, match="not a tree"):
        tree("b", a1="a2", a2="a1")
    with pytest.raises(LocalProtocolError, match="not a tree"):
        tree("b", a1="nobody")
    with pytest.raises(LocalProtocolError, match="same parties"):
        TreePair(tree("b", a1="b"), tree("b", a2="b"))


@pytest.mark.parametrize("parties", [["b"], ["a1", "a2"]])
def test_a_root_needs_company_and_must_be_among_the_parties(parties):
    with pytest.raises(Refused, match="two parties at least"):
        plan_trees(parties, "b", "flat")


def test_children_come_before_their_parents():
    pair = plan_trees(named(11), "party_03", "binomial")
    for each in (pair.scores, pair.masks):
        order = each.leaves_first()
        assert all(order.index(child) < order.index(parent) for child, parent in each.parents.items())


def test_elimination_finds_combinations_that_no_single_form_shows():
    held = [LinearForm((1, 0), (1, 1)), LinearForm((0, 1), (1, -1)), LinearForm((0, 0), (2, 0))]
    (remaining,) = mask_free(held)
    assert spanned_by([remaining], [[1, 1]])
    assert mask_free([]) == []
