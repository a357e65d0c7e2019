"""Which rows stay: counts in are counts out, and nothing goes without a rule that says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.data.csv_source import open_csv
from common.data.ids import IdRule
from common.data.preparation import DEFAULT, Preparation
from common.data.reading import Label, TableRequest, read_table
from common.data.source import CsvFile
from common.data.table import Table
from common.errors import ConfigError, DataError


def read(
    tmp_path: Path, content: str, rule: IdRule | None = None, label: Label | None = None, **rules: Any
) -> Table:
    path = tmp_path / "a.csv"
    path.write_text(content)
    request = TableRequest("ours", rule or IdRule(), "all", Preparation(**rules), label)
    return read_table(open_csv(CsvFile(path)), request)


ROWS = "id,x\n1,10\n,20\n2,30\n1,40\nNULL,50\n3,60\n1,70\n"


@pytest.mark.parametrize(("keep", "values"), [("first", [10, 30, 60]), ("last", [30, 60, 70])])
def test_rows_without_an_id_and_duplicates_go_by_rule_and_are_counted(
    tmp_path: Path, keep: Any, values: list[float]
) -> None:
    rule = IdRule(missing="drop", duplicates=keep, null_words=("null",), case="lower")
    table = read(tmp_path, ROWS, rule)
    assert table.column("x").tolist() == values
    assert table.intake.sentences() == [
        "7 rows read, 3 kept; left out: 2 without an id, "
        f"2 with a duplicate id, of which the {keep} row was kept"
    ]
    assert table.intake.read == table.rows + sum(table.intake.dropped.values())


def test_without_a_rule_duplicates_and_missing_ids_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the id is missing in 1 row") as missing:
        read(tmp_path, ROWS)
    assert "row 2 (line 3)" in missing.value.where
    with pytest.raises(DataError, match="duplicate ids: an id comes again in 2 rows") as again:
        read(tmp_path, ROWS, IdRule(missing="drop"))
    assert "row 4 (line 5) repeats row 1, row 7 (line 8) repeats row 1" in again.value.where


def test_ids_that_become_equal_by_the_rule_are_duplicates(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="duplicate ids"):
        read(tmp_path, "id,x\n001,1\n1,2\n", IdRule(pad_zeros=3))


LABELS = "id,y,x\n1,0,1\n2,,2\n3,1,3\n4,,4\n"


def test_rows_without_a_label_are_an_error_or_dropped_and_never_a_zero(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2 cells in 1 column \\('y'\\)") as caught:
        read(tmp_path, LABELS, label=Label("y"))
    assert "empty: row 2 (line 3), row 4 (line 5)" in caught.value.where
    table = read(tmp_path, LABELS, label=Label("y", missing="drop"))
    assert table.column("y").tolist() == [0.0, 1.0]
    assert table.intake.dropped == {"without a label": 2}


def test_a_rule_for_the_features_never_fills_a_label(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'y'"):
        read(tmp_path, LABELS, label=Label("y"), missing={DEFAULT: "mean"})


def test_rows_with_a_hole_go_where_the_rule_says_drop(tmp_path: Path) -> None:
    content = "id,x,city\n1,1,a\n2,?,b\n3,3,\n4,4,d\n"
    rules = {"types": {"city": "categorical"}, "missing_values": ("", "?")}
    table = read(tmp_path, content, missing={DEFAULT: "drop"}, **rules)
    assert table.ids == ("1", "4")
    assert table.intake.sentences() == ["4 rows read, 2 kept; left out: 1 without x, 1 without city"]
    assert table.cells("city").texts().tolist() == ["a", "d"]
    with pytest.raises(DataError, match="2 cells in 2 columns"):
        read(tmp_path, content, **rules)


def test_nothing_left_is_an_error_with_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no row") as caught:
        read(tmp_path, "id,x\n1,\n2,\n", missing={DEFAULT: "drop"})
    assert caught.value.advice == "left out: 2 without x"


def test_only_declared_markers_mean_missing_and_the_others_are_named(tmp_path: Path) -> None:
    content = "id,x,y\n1,NA,1\n2,?,2\n3,,3\n4,-,4\n5,1.5,5\n"
    table = read(tmp_path, content, missing={"x": "mean"}, missing_values=("", "na", "?", "-"))
    assert np.isnan(table.column("x")).tolist() == [True] * 4 + [False]
    with pytest.raises(DataError) as caught:
        read(tmp_path, content, missing={"x": "mean"})
    assert "'na' for a missing value: row 1" in caught.value.where
    assert "missing_values: ['', '-', '?', 'na']" in caught.value.advice
    assert "empty" not in caught.value.where


def test_rules_and_types_must_fit_each_other_and_the_columns(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing: mean does not fit the categorical column 'x'"):
        read(tmp_path, "id,x\n1,a\n", types={"x": "categorical"}, missing={DEFAULT: "mean"})
    with pytest.raises(ConfigError, match="missing: category does not fit the numeric column 'x'"):
        read(tmp_path, "id,x\n1,1\n", missing={DEFAULT: "category"})
    with pytest.raises(DataError, match="no column 'cty'"):
        read(tmp_path, "id,x,city\n1,1,a\n", types={"cty": "categorical", "city": "categorical"})


@pytest.mark.parametrize(
    ("texts", "positive", "expected"),
    [
        (["yes", "no", "yes"], "yes", [1, 0, 1]),
        (["1", "2", "1.0"], "2", None),
        (["1", "2", "1"], "2.0", [0, 1, 0]),
        (["-1", "+1", "+1"], "1", [0, 1, 1]),
        (["yes", "no", "maybe"], "yes", None),
        (["yes", "no", "no"], "Yes", None),
        (["yes", "yes", "yes"], "yes", None),
    ],
)
def test_a_label_of_two_texts_becomes_one_and_zero_by_the_declared_positive(
    tmp_path: Path, texts: list[str], positive: str, expected: list[int] | None
) -> None:
    content = "id,y,x\n" + "".join(f"{row},{text},1\n" for row, text in enumerate(texts))
    label = Label("y", positive=positive)
    if expected is None:
        with pytest.raises(DataError, match="label 'y'") as caught:
            read(tmp_path, content, label=label)
        assert "maybe" not in caught.value.block()
        return
    table = read(tmp_path, content, label=label)
    assert table.column("y").tolist() == expected
    assert f"{sum(expected)} of 3 rows are 1" in table.intake.notes[-1]


def test_a_label_of_texts_without_a_declared_positive_says_what_to_declare(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, "id,y,x\n1,yes,1\n2,no,2\n", label=Label("y"))
    assert "counts as positive in the job" in caught.value.advice
    assert "categorical" not in caught.value.advice
