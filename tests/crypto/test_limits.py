"""Values that fixed-point numbers cannot tell apart are refused instead of rounded away."""

from __future__ import annotations

import numpy as np
import pytest

from common.crypto.limits import check_resolution
from common.errors import NumericError


def test_a_column_below_sixteen_rounding_steps_is_named_and_no_value_of_it() -> None:
    columns = np.array([[1.0, 0.0, 2.0**-29], [-2.0, 0.0, -(2.0**-30)]])
    with pytest.raises(NumericError, match="'c' is so small that 32 bits") as caught:
        check_resolution(columns, ("a", "b", "c"), 32)
    assert not any(str(exponent) in str(caught.value) for exponent in (28, 29, 30))


def test_columns_of_sixteen_steps_zeros_and_no_rows_pass() -> None:
    check_resolution(np.array([[2.0**-28, 0.0]]), ("a", "b"), 32)
    check_resolution(np.zeros((0, 2)), ("a", "b"), 32)
