"""Slots of a plaintext, the proof of their widths, and few-base exponentiations."""

from __future__ import annotations

import random

import gmpy2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.crypto.entropy import SeededEntropy
from common.crypto.fixed_point import FixedPoint
from common.crypto.gram_plan import MASKING_BITS, GramRequest, norm_bound, prove_gram
from common.crypto.gram_setup import ScaledColumns, cut, pack_rows
from common.crypto.packing import Packing
from common.crypto.straus import MOST_BASES, few_base_powers, product_of_powers
from common.errors import LocalProtocolError, NumericError
from common.runtime.compute import InProcessExecutor

MODULUS = (1 << 255) + 95
SLOTS = Packing.of(256, 60)


@given(st.lists(st.integers(-(1 << 59) + 1, (1 << 59) - 1), min_size=1, max_size=9))
def test_a_vector_comes_back_out_of_its_plaintexts(values):
    packed = [value % MODULUS for value in SLOTS.pack(values)]
    assert len(packed) == SLOTS.plaintexts(len(values))
    assert SLOTS.unpack(packed, len(values), MODULUS) == values


@given(st.lists(st.integers(-(1 << 200), 1 << 200), min_size=4, max_size=4), st.integers(-(1 << 90), 1 << 90))
def test_packing_is_linear_beyond_the_slots_and_the_modulus(values, factor):
    """Terms may overflow as they like if their sum fits."""
    big = [factor * value for value in values]
    total = [
        (one - other + unit) % MODULUS
        for one, other, unit in zip(SLOTS.pack(big), SLOTS.pack(big), SLOTS.pack([1, -2, 3, -4]), strict=True)
    ]
    assert SLOTS.unpack(total, 4, MODULUS) == [1, -2, 3, -4]


def test_a_plaintext_beyond_its_slots_is_an_error():
    with pytest.raises(NumericError, match="does not fit its slots"):
        SLOTS.unpack([1 << 200], 1, MODULUS)
    with pytest.raises(LocalProtocolError):
        SLOTS.unpack([1, 2], 1, MODULUS)


def test_a_slot_that_does_not_fit_the_key_is_refused_with_advice():
    with pytest.raises(NumericError, match="does not fit a 128-bit key") as caught:
        Packing.of(128, 126)
    assert "precision_bits" in caught.value.advice


@pytest.mark.parametrize("rows", [10, 309, 1_000_000])
@pytest.mark.parametrize("scale_bits", [8, 32, 60])
def test_the_slots_of_a_plan_hold_the_largest_products_and_results(rows, scale_bits):
    columns = 40
    plan = prove_gram(GramRequest(2048, scale_bits, rows, columns))
    largest = norm_bound(rows, scale_bits)
    mask = 1 << (plan.mask_bits - 1)
    assert largest + mask < 1 << (plan.products.slot_bits - 1)
    result = columns * ((largest >> scale_bits) + 2) * (1 << (50 + scale_bits))
    assert result < 1 << (plan.results.slot_bits - 1)
    for packing in (plan.products, plan.results):
        assert 3 * (1 << packing.slot_bits * packing.slots) < 1 << 2047


def test_masks_are_wide_enough_for_all_entries_together():
    """Two values that differ by 2·bound under a uniform mask have the statistical distance 2·bound/range."""
    plan = prove_gram(GramRequest(2048, 32, 309, 12))
    each = 2 * norm_bound(309, 32) / 2**plan.mask_bits
    assert 12 * 12 * each <= 2.0**-MASKING_BITS


def test_the_reference_run_packs_fifteen_values_or_more():
    plan = prove_gram(GramRequest(2048, 32, 309, 12))
    assert plan.products.slots >= 15
    assert plan.results.slots >= 15
    assert "2^-40" in plan.describe()


def test_no_column_of_whatever_data_leaves_the_bound_of_the_plan():
    rng = np.random.default_rng(1)
    columns = np.column_stack(
        [rng.normal(size=200) * 1e9, rng.exponential(size=200), np.zeros(200), np.eye(200)[0]]
    )
    scaled = ScaledColumns.of(columns).check(FixedPoint(32))
    encoded = scaled.encoded(slice(None), FixedPoint(32)).astype(object)
    assert (encoded.T @ encoded).max() <= norm_bound(200, 32)
    assert scaled.values * scaled.units == pytest.approx(columns)


def test_packed_rows_times_a_column_are_the_packed_cross_products():
    rng = np.random.default_rng(2)
    left, right = rng.integers(-50, 50, (20, 2)), rng.integers(-50, 50, (20, 7))
    packed = np.array(pack_rows(right, SLOTS), dtype=object).reshape(-1, 20)
    groups = [SLOTS.unpack((packed @ left[:, at].astype(object)).tolist(), 7, MODULUS) for at in range(2)]
    assert groups == (left.T @ right).tolist()


@given(st.integers(-(1 << 80), 1 << 80), st.integers(-(1 << 80), 1 << 80))
def test_cutting_two_shares_moves_their_sum_by_one_unit_at_most(left, right):
    one, other = cut(np.array([left], dtype=object), 16), cut(np.array([right], dtype=object), 16)
    assert abs((int(one[0]) + int(other[0])) * (1 << 16) - (left + right)) <= 1 << 16


@given(st.integers(1, 6), st.integers(1, 300), st.integers(0, 1 << 32))
def test_few_bases_are_raised_as_gmp_does(count, bits, seed):
    drawn = random.Random(seed)
    modulus = gmpy2.mpz(10**20 + 39) ** 2
    bases = [gmpy2.mpz(drawn.randrange(2, 10**40)) for _ in range(count)]
    bases = [base for base in bases if gmpy2.gcd(base, modulus) == 1]
    exponents = [drawn.randrange(-(1 << bits), 1 << bits) for _ in bases]
    expected = gmpy2.mpz(1)
    for base, exponent in zip(bases, exponents, strict=True):
        expected = expected * gmpy2.powmod(base, exponent, modulus) % modulus
    assert product_of_powers(bases, exponents, modulus) == expected


def test_few_base_powers_work_column_by_column():
    modulus = (10**9 + 7) ** 2
    bases = [SeededEntropy(b"bases").bits(50) for _ in range(3)]
    content = b"".join(base.to_bytes(8, "big") for base in bases)
    matrix = np.array([[1, 0, -1], [2, 0, 1 << 70], [-3, 0, 5]], dtype=object)
    found = few_base_powers(InProcessExecutor(), matrix, content, modulus.to_bytes(8, "big"))
    assert found[1] == 1
    assert found[0] == bases[0] * bases[1] ** 2 * pow(bases[2], -3, modulus) % modulus
    assert MOST_BASES >= 16
