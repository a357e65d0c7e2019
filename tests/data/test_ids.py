"""Ids and their digests."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.data.ids import IdRule, ordered_id_digest, sorted_id_digest

KEY = b"k" * 32


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
    ],
)
def test_an_id_is_text_under_the_declared_rule(rule: IdRule, cell: str, expected: str) -> None:
    assert rule.canonical(cell) == expected


def test_the_digest_is_hmac_sha256_over_length_prefixed_parts() -> None:
    parts = [b"colonnade ids, in file order, v1", b"ab", "ç".encode()]
    label, *ids = [len(part).to_bytes(8, "big") + part for part in parts]
    expected = hmac.digest(KEY, label + (2).to_bytes(8, "big") + b"".join(ids), hashlib.sha256)
    assert ordered_id_digest(["ab", "ç"], KEY) == expected


@given(st.lists(st.text(max_size=4), max_size=6), st.lists(st.text(max_size=4), max_size=6))
def test_ordered_digests_are_equal_exactly_for_equal_lists(left: list[str], right: list[str]) -> None:
    assert (ordered_id_digest(left, KEY) == ordered_id_digest(right, KEY)) == (left == right)


@given(st.lists(st.text(max_size=4), max_size=6), st.lists(st.text(max_size=4), max_size=6))
def test_sorted_digests_are_equal_exactly_for_the_same_ids_in_any_order(
    left: list[str], right: list[str]
) -> None:
    assert (sorted_id_digest(left, KEY) == sorted_id_digest(right, KEY)) == (sorted(left) == sorted(right))


def test_without_the_key_a_digest_cannot_be_compared() -> None:
    assert ordered_id_digest(["1"], KEY) != ordered_id_digest(["1"], b"j" * 32)
    assert ordered_id_digest(["1"], KEY) != sorted_id_digest(["1"], KEY)
