"""New rows for a saved model: columns are matched by name, and all that does not fit is listed at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.data.csv_source import open_csv
from common.data.ids import IdRule
from common.data.matching import ModelColumns, extra_columns, request_for_model
from common.data.preparation import DEFAULT, Preparation
from common.data.preprocess import Preprocessing
from common.data.reading import TableRequest, read_table
from common.data.source import CsvFile
from common.errors import DataError

TRAINING = "id,age,city,income,flat\n1,30,Bern,10,7\n2,40,Chur,20,7\n3,,Bern,30,7\n4,60,Chur,40,7\n"
RULES = Preparation(types={"city": "categorical"}, missing={"age": "mean"}, min_frequency=1)


@pytest.fixture
def fitted(tmp_path: Path) -> Preprocessing:
    return Preprocessing.fit(
        read_table(source(tmp_path, TRAINING), TableRequest("old", preparation=RULES)), "none"
    )


@pytest.fixture
def scaled(tmp_path: Path) -> Preprocessing:
    table = read_table(source(tmp_path, TRAINING), TableRequest("old", preparation=RULES))
    return Preprocessing.from_json(Preprocessing.fit(table, "standardize").to_json())


def source(tmp_path: Path, content: str):  # type: ignore[no-untyped-def]
    path = tmp_path / "a.csv"
    path.write_text(content)
    return open_csv(CsvFile(path))


def test_columns_are_found_by_name_in_any_order_with_the_rules_of_the_training(
    tmp_path: Path, scaled: Preprocessing
) -> None:
    new = source(tmp_path, "more,income,sid,city,age\nx,20,9,Chur,\ny,30,8,Bern,20\n")
    request = request_for_model(
        ModelColumns.of_preprocessing(scaled), new, TableRequest("new", IdRule(column="sid"))
    )
    prepared = scaled.apply(read_table(new, request))
    assert scaled.features == ("age", "city=Bern", "city=Chur", "income")
    assert prepared.matrix[:, 1:3].tolist() == [[0, 1], [1, 0]]
    assert prepared.matrix[0, 0] == pytest.approx(0.0)
    assert prepared.notes == ("column age: 1 missing value of 2 were filled by the rule mean",)
    assert extra_columns(ModelColumns.of_preprocessing(scaled), new, request) == [
        "1 column not known to the model and not read: 'more'"
    ]


def test_a_column_that_was_constant_in_training_need_not_be_there(
    tmp_path: Path, scaled: Preprocessing
) -> None:
    new = source(tmp_path, "id,age,city,income\n1,30,Bern,10\n")
    assert (
        read_table(
            new, request_for_model(ModelColumns.of_preprocessing(scaled), new, TableRequest("new"))
        ).rows
        == 1
    )


def test_missing_further_and_retyped_columns_are_listed_in_one_error(
    tmp_path: Path, fitted: Preprocessing
) -> None:
    new = source(tmp_path, "id,Age,city,income,flat\n1,30,Bern,low,7\n2,40,Chur,high,7\n")
    with pytest.raises(DataError, match="columns of the model's training") as caught:
        request_for_model(ModelColumns.of_preprocessing(fitted), new, TableRequest("new"))
    assert caught.value.where == (
        "missing: 'age'; text where training had numbers: 'income'; not known to the model: 'Age'"
    )
    assert "high" not in caught.value.block()


def test_a_single_wrong_cell_is_reported_as_a_cell_and_not_as_another_type(
    tmp_path: Path, fitted: Preprocessing
) -> None:
    new = source(tmp_path, "id,age,city,income,flat\n1,30,Bern,low,7\n2,40,Chur,20,7\n")
    with pytest.raises(DataError) as caught:
        read_table(new, request_for_model(ModelColumns.of_preprocessing(fitted), new, TableRequest("new")))
    assert "column 'income': text, not a number: row 1 (line 2)" in caught.value.where


def test_a_hole_where_training_had_none_is_an_error(tmp_path: Path, fitted: Preprocessing) -> None:
    new = source(tmp_path, "id,age,city,income,flat\n1,30,Bern,,7\n")
    lenient = TableRequest("new", preparation=Preparation(missing={DEFAULT: "zero"}))
    request = request_for_model(ModelColumns.of_preprocessing(fitted), new, lenient)
    with pytest.raises(DataError, match="'income'"):
        read_table(new, request)
