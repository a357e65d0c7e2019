"""Ids and their digests."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.data.ids import IdRule, ids_digest, in_id_order, rule_differences
from common.errors import RemoteProtocolError


@pytest.mark.parametrize(
    ("rule", "cell", "expected"),
    [
        (IdRule(), " 001 ", "001"),
        (IdRule(strip=False), " 001 ", " 001 "),
        (IdRule(case="lower"), "AbÇ", "abç"),
        (IdRule(case="upper"), "ab", "AB"),
        (IdRule(), "e\u0301", "é"),
        (IdRule(unicode="none"), "e\u0301", "e\u0301"),
        (IdRule(unicode="NFKC"), "１", "1"),
        (IdRule(), "１", "１"),
        (IdRule(), "9007199254740993", "9007199254740993"),
        (IdRule(), "123.0", "123.0"),
        (IdRule(), "1e5", "1e5"),
        (IdRule(), "NA", "NA"),
        (IdRule(), "  ", ""),
        (IdRule(null_words=("NULL", "n/a")), "NULL", ""),
        (IdRule(null_words=("NULL",)), "null", "null"),
        (IdRule(null_words=("NULL",), case="lower"), "Null ", ""),
        (IdRule(pad_zeros=6), "123", "000123"),
        (IdRule(pad_zeros=6), "1234567", "1234567"),
        (IdRule(pad_zeros=6), "A123", "A123"),
        (IdRule(pad_zeros=6), "-1", "-1"),
        (IdRule(pad_zeros=6), "１", "１"),
        (IdRule(pad_zeros=6), "", ""),
        (IdRule(pad_zeros=6, null_words=("0",)), "0", ""),
    ],
)
def test_an_id_is_text_under_the_declared_rule(rule: IdRule, cell: str, expected: str) -> None:
    assert rule.canonical(cell) == expected


@given(
    st.text(max_size=8),
    st.sampled_from(["keep", "lower", "upper"]),
    st.sampled_from(["NFC", "NFKC", "none"]),
    st.none() | st.integers(1, 9),
)
def test_an_id_that_is_canonical_stays_as_it_is(cell: str, case: Any, form: Any, width: int | None) -> None:
    rule = IdRule(case=case, unicode=form, pad_zeros=width)
    once = rule.canonical(cell)
    assert rule.canonical(once) == once


def test_two_rules_can_be_compared_without_the_name_of_the_column() -> None:
    ours, theirs = IdRule(), IdRule(column="customer", case="upper", null_words=("x", "NA"))
    assert rule_differences(ours.describe(), IdRule(column="sid").describe()) == []
    assert rule_differences(ours.describe(), theirs.describe()) == [
        'case: "keep" here, "upper" there',
        'null_words: [] here, ["NA", "X"] there',
    ]
    assert rule_differences(ours.describe(), "{}")[0] == "strip: true here, null there"


@pytest.mark.parametrize("text", ["", "[]", "strip", "[" * 100_000])
def test_a_rule_from_the_other_side_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="id rule"):
        rule_differences(IdRule().describe(), text)


@given(st.lists(st.text(max_size=4), max_size=6), st.lists(st.text(max_size=4), max_size=6))
def test_digests_are_equal_exactly_for_equal_lists(left: list[str], right: list[str]) -> None:
    assert (ids_digest(left) == ids_digest(right)) == (left == right)


def test_the_digest_covers_where_one_id_ends() -> None:
    assert ids_digest(["ab", "c"]) != ids_digest(["a", "bc"])


@given(st.lists(st.text(max_size=4), unique=True, max_size=8), st.randoms())
def test_two_sides_put_the_same_ids_in_the_same_order(ids: list[str], shuffler: random.Random) -> None:
    other = shuffler.sample(ids, len(ids))
    rows = np.arange(len(ids))
    assert [ids[row] for row in in_id_order(ids, rows)] == [other[row] for row in in_id_order(other, rows)]
