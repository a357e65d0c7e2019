"""One scale for a job: rounding, wide values, signs, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.crypto.fixed_point import FixedPoint
from common.errors import NumericError

MODULUS = (1 << 255) + 95
REALS = st.floats(min_value=-(2.0**60), max_value=2.0**60)
SCALES = st.integers(min_value=1, max_value=60)


@given(value=REALS, scale_bits=SCALES)
def test_encoding_is_the_nearest_multiple_of_the_resolution(value: float, scale_bits: int) -> None:
    encoded = int(FixedPoint(scale_bits).encode(np.array([value]))[0])
    assert abs(Fraction(encoded, 1 << scale_bits) - Fraction(value)) <= Fraction(1, 1 << (scale_bits + 1))


@given(value=REALS, scale_bits=SCALES)
def test_what_is_encoded_decodes_to_itself_within_the_resolution(value: float, scale_bits: int) -> None:
    fixed_point = FixedPoint(scale_bits)
    encoded = int(fixed_point.encode(np.array([value]))[0])
    assert fixed_point.decode(encoded % MODULUS, MODULUS) == encoded / (1 << scale_bits)
    wide = fixed_point.encode_wide(value)
    assert abs(fixed_point.decode_wide(wide % MODULUS, MODULUS) - value) <= 2.0 ** -(2 * scale_bits)


def test_known_encodings() -> None:
    fixed_point = FixedPoint(4)
    assert fixed_point.encode(np.array([1.0, -1.0, 0.03, 0.04, -2.5])).tolist() == [16, -16, 0, 1, -40]
    assert fixed_point.encode_wide(-1.5) == -384
    assert fixed_point.decode(MODULUS - 40, MODULUS) == -2.5
    assert fixed_point.decode_wide(384, MODULUS) == 1.5


def test_small_values_are_machine_integers_and_large_ones_exact_python_integers() -> None:
    fixed_point = FixedPoint(50)
    assert fixed_point.encode(np.array([[1.0, -4000.0]])).dtype == np.int64
    wide = fixed_point.encode(np.array([[2.0**40, -1.0]]))
    assert wide.dtype == object
    assert wide.tolist() == [[1 << 90, -(1 << 50)]]


def test_the_largest_int64_is_not_wrapped_around() -> None:
    encoded = FixedPoint(3).encode(np.array([2.0**60, -(2.0**60)]))
    assert encoded.tolist() == [1 << 63, -(1 << 63)]


def test_a_matrix_keeps_its_shape() -> None:
    for scale in (1.0, 2.0**60):
        assert FixedPoint(30).encode(np.full((3, 2), scale)).shape == (3, 2)
    assert FixedPoint(30).encode(np.empty((0, 4))).shape == (0, 4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_values_that_are_not_finite_at_the_scale_are_refused_without_being_named(value: float) -> None:
    fixed_point = FixedPoint(50)
    with pytest.raises(NumericError) as caught:
        fixed_point.encode(np.array([1.0, value]))
    assert "1e+300" not in caught.value.block()
    with pytest.raises(NumericError):
        fixed_point.encode_wide(value)


def test_a_residue_in_the_middle_third_is_an_overflow() -> None:
    third = MODULUS // 3
    fixed_point = FixedPoint(1)
    assert fixed_point.decode(third, MODULUS) == third / 2
    assert fixed_point.decode(MODULUS - third, MODULUS) == -third / 2
    for residue in (third + 1, MODULUS // 2, MODULUS - third - 1):
        with pytest.raises(NumericError):
            fixed_point.decode(residue, MODULUS)
        with pytest.raises(NumericError):
            fixed_point.decode_wide(residue, MODULUS)
