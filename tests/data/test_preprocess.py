"""Standardisation."""

from __future__ import annotations

import json

import numpy as np
import pytest

from common.data.preprocess import Standardizer
from common.errors import DataError, NumericError

X = np.random.default_rng(5).normal(3.0, 2.0, size=(50, 3))


def test_training_columns_get_mean_zero_and_standard_deviation_one_with_ddof_zero() -> None:
    scaled = Standardizer.fit(X, ["a", "b", "c"]).apply(X)
    assert np.allclose(scaled.mean(axis=0), 0.0, atol=1e-14)
    assert np.allclose(scaled.std(axis=0, ddof=0), 1.0, atol=1e-14)


def test_columns_constant_up_to_rounding_keep_their_scale_and_are_named() -> None:
    almost = np.resize([1000.0, 1000.0000000000001, 1000.0000000000002], 50)
    values = np.column_stack([X[:, 0], np.full(50, 3.5), almost])
    standardizer = Standardizer.fit(values, ["a", "b", "c"])
    assert standardizer.constant == ("b", "c")
    assert standardizer.scale[1:] == (1.0, 1.0)
    assert np.abs(standardizer.apply(values)[:, 1:]).max() < 1e-9


def test_a_saved_standardisation_comes_back_exactly() -> None:
    standardizer = Standardizer.fit(X, ["a", "b", "c"])
    assert Standardizer.from_json(json.loads(json.dumps(standardizer.to_json()))) == standardizer


def test_the_identity_changes_nothing() -> None:
    assert np.array_equal(Standardizer.identity(["a", "b", "c"]).apply(X), X)


@pytest.mark.parametrize(
    "damage",
    [
        {"kind": "other"},
        {"mean": [1.0]},
        {"scale": [1.0, 0.0, 1.0]},
        {"scale": "abc"},
        {"mean": [1, 2, None]},
    ],
)
def test_a_damaged_document_is_refused(damage: dict[str, object]) -> None:
    document = Standardizer.fit(X, ["a", "b", "c"]).to_json() | damage
    with pytest.raises(DataError, match="standardisation"):
        Standardizer.from_json(document)


def test_another_number_of_columns_is_refused() -> None:
    with pytest.raises(DataError, match="2 columns"):
        Standardizer.fit(X, ["a", "b", "c"]).apply(X[:, :2])


def test_a_column_whose_variance_overflows_is_named() -> None:
    values = np.column_stack([X[:, 0], np.resize([1e300, -1e300], 50)])
    with pytest.raises(NumericError, match="'b'"):
        Standardizer.fit(values, ["a", "b"])


def test_neither_means_nor_scales_are_printed() -> None:
    assert str(X[:, 0].mean())[:6] not in repr(Standardizer.fit(X, ["a", "b", "c"]))
