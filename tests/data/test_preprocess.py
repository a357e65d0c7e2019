"""Preprocessing: learnt on training rows by scikit-learn, applied from plain JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from common.data.columns import CategoryReader, NumericColumn
from common.data.preparation import DEFAULT, Preparation
from common.data.preprocess import Preprocessing
from common.data.table import Table
from common.errors import DataError, NumericError

X = np.random.default_rng(5).normal(3.0, 2.0, size=(50, 3))
SECRET = "s3cr3t"


def table(columns: dict[str, Any], **rules: Any) -> Table:
    """Return a table of these columns: arrays are numbers, lists are categories."""
    read = []
    for name, values in columns.items():
        if isinstance(values, np.ndarray):
            read.append(NumericColumn(values))
        else:
            reader = CategoryReader(name)
            reader.read(pa.array(values, pa.string()))
            read.append(reader.column())
    ids = tuple(str(row) for row in range(len(read[0])))
    return Table("ours", "a.csv", ids, tuple(columns), tuple(read), Preparation(**rules))


def numbers(**rules: Any) -> Table:
    return table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}, **rules)


def reloaded(fitted: Preprocessing) -> Preprocessing:
    return Preprocessing.from_json(json.loads(json.dumps(fitted.to_json())))


def test_training_columns_get_mean_zero_and_standard_deviation_one_with_ddof_zero() -> None:
    scaled = Preprocessing.fit(numbers(), "standardize").apply(numbers()).matrix
    assert np.allclose(scaled.mean(axis=0), 0.0, atol=1e-14)
    assert np.allclose(scaled.std(axis=0, ddof=0), 1.0, atol=1e-14)


def test_min_max_puts_training_columns_between_zero_and_one() -> None:
    scaled = Preprocessing.fit(numbers(), "minmax").apply(numbers()).matrix
    assert np.array_equal(scaled.min(axis=0), np.zeros(3))
    assert np.allclose(scaled.max(axis=0), np.ones(3))


def test_the_dataset_may_overrule_the_scaling_of_the_job() -> None:
    fitted = Preprocessing.fit(numbers(scale="none"), "standardize")
    assert np.array_equal(fitted.apply(numbers()).matrix, X)


def test_columns_constant_up_to_rounding_are_left_out_and_named() -> None:
    almost = np.resize([1000.0, 1000.0000000000001, 1000.0000000000002], 50)
    rows = table(
        {"a": X[:, 0], "b": np.full(50, 3.5), "c": almost, "city": ["Bern"] * 50},
        types={"city": "categorical"},
    )
    fitted = Preprocessing.fit(rows, "standardize")
    assert fitted.features == ("a",)
    assert fitted.constant == ("b", "c", "city")
    assert [note.split()[1] for note in fitted.notes()] == ["b", "c", "city"]
    assert reloaded(fitted).apply(rows).matrix.shape == (50, 1)


def test_without_scaling_a_constant_column_stays_and_is_named() -> None:
    fitted = Preprocessing.fit(table({"one": np.ones(50), "a": X[:, 0]}), "none")
    assert fitted.features == ("one", "a")
    assert fitted.notes() == ["column one is constant on the training rows; nothing is scaled, so it stays"]


@pytest.mark.parametrize(
    ("rule", "value"), [("mean", 3.5), ("median", 3.0), ("most_frequent", 1.0), ("zero", 0.0)]
)
def test_missing_numbers_are_filled_from_the_training_rows_and_counted(rule: str, value: float) -> None:
    training = table({"a": np.array([1.0, 1.0, 5.0, 7.0, np.nan])}, missing={DEFAULT: rule})
    fitted = Preprocessing.fit(training, "none")
    new = fitted.apply(table({"a": np.array([np.nan, 2.0])}))
    assert new.matrix[:, 0].tolist() == [value, 2.0]
    assert new.notes == (f"column a: 1 missing value of 2 were filled by the rule {rule}",)


def test_a_missing_number_without_a_rule_is_refused() -> None:
    fitted = Preprocessing.fit(numbers(), "standardize")
    with pytest.raises(DataError, match="'b'"):
        fitted.apply(table({"a": X[:2, 0], "b": np.array([np.nan, 1.0]), "c": X[:2, 2]}))


def test_a_column_without_any_training_value_cannot_be_filled() -> None:
    with pytest.raises(DataError, match="no value on any training row"):
        Preprocessing.fit(table({"a": np.full(4, np.nan)}, missing={DEFAULT: "mean"}), "none")


def cities(texts: list[str | None], **rules: Any) -> Table:
    return table({"city": texts}, types={"city": "categorical"}, **{"min_frequency": 2, **rules})


TRAINING = ["Bern"] * 3 + ["NA"] * 2 + ["Chur", "Thun"]


def test_categories_become_columns_and_rare_ones_share_one() -> None:
    fitted = Preprocessing.fit(cities(TRAINING), "standardize")
    assert fitted.features == ("city=Bern", "city=NA", "city=(other)")
    rows = reloaded(fitted).apply(cities(["NA", "Chur", "Bern"]))
    assert rows.matrix.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert rows.notes == ()
    assert fitted.notes() == ["column city: 2 rare categories share one column, city=(other)"]


def test_a_category_never_seen_counts_as_other_and_is_counted() -> None:
    rows = Preprocessing.fit(cities(TRAINING), "none").apply(cities(["Basel", "Bern", "Basel"]))
    assert rows.matrix.tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1]]
    assert rows.notes == (
        "column city: 2 rows of 3 with a category that no training row had, counted as city=(other)",
    )
    assert "Basel" not in rows.notes[0]


def test_a_category_never_seen_is_a_row_of_zeros_when_nothing_was_rare() -> None:
    rows = Preprocessing.fit(cities(["Bern", "Chur"] * 3), "none").apply(cities(["Basel"]))
    assert rows.matrix.tolist() == [[0, 0]]
    assert "none of the known ones" in rows.notes[0]


def test_a_missing_category_is_filled_or_becomes_a_category_of_its_own() -> None:
    texts = [*TRAINING, None, None]
    filled = Preprocessing.fit(cities(texts, missing={"city": "most_frequent"}), "none")
    assert filled.apply(cities([None])).matrix.tolist() == [[1, 0, 0]]
    own = Preprocessing.fit(cities(texts, missing={"city": "category"}), "none")
    assert own.features == ("city=(missing)", "city=Bern", "city=NA", "city=(other)")
    rows = reloaded(own).apply(cities([None, "NA"]))
    assert rows.matrix.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]
    assert "1 missing value of 2 were made a category of their own" in rows.notes[0]


def test_the_number_of_columns_of_a_category_is_capped() -> None:
    texts = [f"{letter}" for letter in "aaaaabbbbcccdde"]
    fitted = Preprocessing.fit(cities(texts, min_frequency=1, max_categories=3), "none")
    assert fitted.features == ("city=a", "city=b", "city=(other)")


def test_a_real_category_called_other_keeps_its_own_column() -> None:
    fitted = Preprocessing.fit(cities(["(other)"] * 2 + ["Bern"] * 2 + ["Chur"]), "none")
    assert fitted.features == ("city=(other)", "city=Bern", "city=((other))")


def test_two_columns_of_one_name_are_refused() -> None:
    rows = table(
        {"city=Bern": X[:4, 0], "city": ["Bern", "Bern", "Chur", "Chur"]},
        types={"city": "categorical"},
        min_frequency=1,
    )
    with pytest.raises(DataError, match="the name of another"):
        Preprocessing.fit(rows, "none")


texts = st.lists(st.sampled_from(["a", "b", "c", "d", "NA", None]), min_size=4, max_size=40)
values = st.lists(st.floats(-100, 100) | st.none(), min_size=4, max_size=40)


@given(texts, values, texts, values, st.sampled_from(["standardize", "minmax"]), st.integers(1, 3))
def test_applying_from_json_gives_what_scikit_learn_gives(
    known: list[str | None],
    seen: list[float | None],
    new: list[str | None],
    fresh: list[float | None],
    scale: Any,
    frequency: int,
) -> None:
    def both(words: list[str | None], amounts: list[float | None]) -> tuple[Table, np.ndarray]:
        rows = min(len(words), len(amounts))
        words, amounts = (
            words[:rows],
            [*map(float, (np.nan if one is None else one for one in amounts[:rows]))],
        )
        frame = np.empty((rows, 2), dtype=object)
        frame[:, 0], frame[:, 1] = words, amounts
        rules = {"city": "most_frequent", "x": "median"}
        ours = table({"city": words, "x": np.array(amounts)}, missing=rules, min_frequency=frequency)
        return ours, frame

    (training, trained), (test, tested) = both(known, seen), both(new, fresh)
    if all(one is None for one in trained[:, 0]) or np.isnan(trained[:, 1].astype(float)).all():
        return
    scaler = StandardScaler() if scale == "standardize" else MinMaxScaler()
    encoder = OneHotEncoder(
        handle_unknown="infrequent_if_exist", min_frequency=frequency, sparse_output=False
    )
    oracle = ColumnTransformer(
        [
            (
                "city",
                make_pipeline(SimpleImputer(strategy="most_frequent", missing_values=None), encoder),
                [0],
            ),
            ("x", make_pipeline(SimpleImputer(strategy="median"), scaler), [1]),
        ]
    ).fit(trained)
    fitted = Preprocessing.fit(training, scale)
    expected = oracle.transform(tested)
    kept = [at for at in range(expected.shape[1] - 1) if "city" not in fitted.constant]
    kept += [expected.shape[1] - 1] if "x" not in fitted.constant else []
    assert np.allclose(
        reloaded(fitted).apply(test).matrix, expected[:, kept].astype(float), rtol=1e-9, atol=1e-9
    )


def test_a_saved_preprocessing_comes_back_exactly() -> None:
    fitted = Preprocessing.fit(
        table({"city": TRAINING, "a": X[:7, 0]}, types={"city": "categorical"}, min_frequency=1),
        "standardize",
    )
    assert reloaded(fitted) == fitted


@pytest.mark.parametrize(
    "damage",
    [
        {"kind": "other"},
        {"version": 2},
        {"columns": {}},
        {"columns": [1]},
        {
            "columns": [
                {"name": "a", "type": "numeric", "missing": "error", "fill": None, "shift": 0.0, "scale": 0.0}
            ]
        },
        {
            "columns": [
                {
                    "name": "a",
                    "type": "numeric",
                    "missing": "error",
                    "fill": None,
                    "shift": True,
                    "scale": 1.0,
                }
            ]
        },
        {
            "columns": [
                {"name": "a", "type": "numeric", "missing": "guess", "fill": None, "shift": 0.0, "scale": 1.0}
            ]
        },
        {"columns": [{"name": "a", "type": "text", "missing": "error", "fill": None}]},
        {
            "columns": [
                {
                    "name": 1,
                    "type": "categorical",
                    "missing": "error",
                    "fill": None,
                    "categories": [],
                    "rare": [],
                }
            ]
        },
        {"constant": 3},
    ],
)
def test_a_damaged_document_is_refused(damage: dict[str, object]) -> None:
    document = Preprocessing.fit(numbers(), "standardize").to_json() | damage
    with pytest.raises(DataError, match="saved preprocessing"):
        Preprocessing.from_json(document)


def test_a_column_of_another_type_or_a_missing_one_is_refused_by_name() -> None:
    fitted = Preprocessing.fit(
        table({"city": TRAINING, "a": X[:7, 0]}, types={"city": "categorical"}, min_frequency=1), "none"
    )
    with pytest.raises(DataError, match="'city' was categorical"):
        fitted.apply(table({"city": X[:7, 0], "a": X[:7, 0]}))
    with pytest.raises(DataError, match="'a' was numeric"):
        fitted.apply(table({"city": TRAINING, "a": TRAINING}))
    with pytest.raises(DataError, match="no column 'a'"):
        fitted.apply(table({"city": TRAINING}))


def test_a_column_whose_variance_overflows_is_named() -> None:
    with pytest.raises(NumericError, match="'b'"):
        Preprocessing.fit(table({"a": X[:, 0], "b": np.resize([1e300, -1e300], 50)}), "standardize")


def test_nothing_that_was_learnt_is_printed() -> None:
    rows = table({"a": X[:, 0], "city": [SECRET, "b"] * 25}, types={"city": "categorical"})
    text = repr(Preprocessing.fit(rows, "standardize")) + repr(rows)
    assert str(X[:, 0].mean())[:6] not in text
    assert SECRET not in text
