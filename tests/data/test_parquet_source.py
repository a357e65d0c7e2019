"""Parquet: types of the file never change an id, and a folder is one table."""

from __future__ import annotations

import decimal
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.data.ids import IdRule
from common.data.parquet_source import open_parquet
from common.data.preparation import DEFAULT, Preparation
from common.data.reading import TableRequest, read_table
from common.data.source import ParquetFiles
from common.data.table import Table
from common.errors import DataError

SECRET = "s3cr3t"
TRICKY = ["001", "1", "1.0", "1e5", "9007199254740993", "NA", "e\u0301", "null", "nan", "-0", "1_000"]


def write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def read(path: Path, rule: IdRule | None = None, **rules: Any) -> Table:
    return read_table(
        open_parquet(ParquetFiles(path)), TableRequest("ours", rule or IdRule(), "all", Preparation(**rules))
    )


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]
)
def test_text_ids_survive_as_they_are(tmp_path: Path, kind: pa.DataType) -> None:
    ids = (
        pa.array(TRICKY).cast(kind)
        if not pa.types.is_dictionary(kind)
        else pa.array(TRICKY).dictionary_encode()
    )
    path = write(tmp_path / "a.parquet", {"id": ids, "x": np.arange(len(TRICKY))})
    assert read(path, IdRule(unicode="none")).ids == tuple(TRICKY)
    assert read(path).ids[6] == "é"


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(20, 0)])
def test_integer_ids_become_their_decimal_text_beyond_what_a_float_holds(
    tmp_path: Path, kind: pa.DataType
) -> None:
    ids = pa.array([1, 9007199254740993, 10**15]).cast(kind)
    table = read(write(tmp_path / "a.parquet", {"id": ids, "x": [1, 2, 3]}))
    assert table.ids == ("1", "9007199254740993", "1000000000000000")


def test_integer_ids_can_be_padded_to_meet_the_other_side(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"id": [123, 57797], "x": [1, 2]})
    assert read(path, IdRule(pad_zeros=6)).ids == ("000123", "057797")


def test_uuids_become_their_usual_text(tmp_path: Path) -> None:
    one = UUID("53cb5cee-c5e2-432b-a72e-80ffe2d1f607")
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([one.bytes], pa.binary(16)))
    assert read(write(tmp_path / "a.parquet", {"id": ids, "x": [1]})).ids == (str(one),)


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([1.0, 2.0]),
        pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.50")]),
        pa.array([True, False]),
        pa.array([date(2024, 1, 1), date(2024, 1, 2)]),
        pa.array([[1], [2]]),
        pa.array([b"\xff\xfe", b"\xff"]),
    ],
)
def test_ids_of_a_type_that_loses_them_are_refused(tmp_path: Path, ids: pa.Array) -> None:
    with pytest.raises(DataError) as caught:
        read(write(tmp_path / "a.parquet", {"id": ids, "x": [1, 2]}))
    assert "column 'id'" in caught.value.where


def test_null_ids_are_missing_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"id": ["1", None], "x": [1, 2]})
    with pytest.raises(DataError, match="missing in 1 row"):
        read(path)
    assert read(path, IdRule(missing="drop")).ids == ("1",)


def test_every_number_becomes_a_float_and_null_and_nan_are_missing(tmp_path: Path) -> None:
    columns = {
        "id": ["1", "2", "3"],
        "i": pa.array([1, None, 3], pa.int16()),
        "f": pa.array([1.5, float("nan"), None], pa.float32()),
        "b": [True, False, None],
        "d": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-3.50")]),
        "t": ["1", " 2 ", None],
        "n": pa.nulls(3),
    }
    table = read(write(tmp_path / "a.parquet", columns), missing={DEFAULT: "zero"})
    expected = [
        [1, np.nan, 3],
        [1.5, np.nan, np.nan],
        [1, 0, np.nan],
        [1.25, np.nan, -3.5],
        [1, 2, np.nan],
        [np.nan] * 3,
    ]
    assert np.array_equal(table.values.T, expected, equal_nan=True)


@pytest.mark.parametrize("value", [datetime(2024, 1, 1, tzinfo=UTC), date(2024, 1, 1), [1, 2], {"a": 1}])
def test_a_time_or_a_nested_value_is_no_number_and_is_refused_by_name(tmp_path: Path, value: Any) -> None:
    path = write(tmp_path / "a.parquet", {"id": ["1"], "x": [1], "when": pa.array([value])})
    with pytest.raises(DataError) as caught:
        read(path)
    assert "column 'when': of type" in caught.value.where
    assert "2024" not in caught.value.block()


def test_infinite_values_are_refused_with_their_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"id": ["1", "2"], "x": [1.0, float("-inf")]})
    with pytest.raises(DataError) as caught:
        read(path)
    assert "infinite or too large: row 2" in caught.value.where


def test_any_simple_type_can_be_a_category(tmp_path: Path) -> None:
    columns = {
        "id": ["1", "2", "3"],
        "i": [1, 2, None],
        "f": [1.0, 2.5, float("nan")],
        "b": [True, False, None],
        "day": [date(2024, 1, 1), None, date(2024, 1, 2)],
        "c": pa.array(["NA", "", None]).dictionary_encode(),
    }
    table = read(
        write(tmp_path / "a.parquet", columns), types={DEFAULT: "categorical"}, missing={DEFAULT: "category"}
    )
    assert [table.cells(name).texts().tolist() for name in table.features] == [
        ["1", "2", None],
        ["1.0", "2.5", None],
        ["true", "false", None],
        ["2024-01-01", None, "2024-01-02"],
        ["NA", None, None],
    ]


def test_a_folder_is_one_table_in_the_order_of_the_file_names(tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    write(folder / "part-1.parquet", {"x": [3.0], "id": ["003"]})
    write(folder / "part-0.parquet", {"id": [1, 2], "x": [1, 2]})
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.parquet.crc").write_bytes(b"crc")
    table = read(folder)
    assert table.ids == ("1", "2", "003")
    assert table.column("x").tolist() == [1.0, 2.0, 3.0]


def test_an_error_names_the_file_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    write(folder / "part-0.parquet", {"id": ["1", "2"], "x": ["1", "2"]})
    write(folder / "part-1.parquet", {"id": ["3", "4"], "x": ["3", SECRET]})
    with pytest.raises(DataError) as caught:
        read(folder)
    assert "text, not a number: row 2 of part-1.parquet" in caught.value.where
    assert SECRET not in caught.value.block()


def test_files_of_one_folder_must_have_the_same_columns(tmp_path: Path) -> None:
    write(tmp_path / "ours" / "0.parquet", {"id": ["1"], "x": [1]})
    write(tmp_path / "ours" / "1.parquet", {"id": ["2"], "y": [1]})
    with pytest.raises(DataError, match="different columns: 'x', 'y'"):
        read(tmp_path / "ours")


@pytest.mark.parametrize(
    ("damage", "claim"),
    [
        (b"", "no whole Parquet"),
        (b"PAR1 and then nothing", "no whole Parquet"),
        (b"id,x\n1,2\n", "no whole Parquet"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: bytes, claim: str) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(damage)
    with pytest.raises(DataError, match="no whole Parquet"):
        read(path)


def test_a_file_that_was_cut_off_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.parquet",
        {"id": [str(one) for one in range(5000)], "x": np.random.default_rng(1).random(5000)},
    )
    data = path.read_bytes()
    path.write_bytes(data[:1000] + bytes(3000) + data[4000:])
    with pytest.raises(DataError):
        read(path)


def test_missing_files_empty_folders_and_tables_without_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        read(tmp_path / "none.parquet")
    with pytest.raises(DataError, match="holds no Parquet files"):
        read(tmp_path)
    with pytest.raises(DataError, match="has no rows"):
        read(write(tmp_path / "a.parquet", {"id": pa.array([], pa.string()), "x": pa.array([], pa.int64())}))


def test_the_row_index_that_pandas_stores_is_left_out_and_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"id": ["1"], "x": [1], "__index_level_0__": [7]})
    table = read(path)
    assert table.features == ("x",)
    assert "row index of pandas" in table.intake.notes[0]


def test_the_same_rows_from_csv_and_from_parquet_have_one_digest(tmp_path: Path) -> None:
    from common.data.reading import read_csv_table

    (tmp_path / "a.csv").write_text("id,x\n001,1.5\n002,2\n")
    path = write(tmp_path / "a.parquet", {"id": ["001", "002"], "x": [1.5, 2.0]})
    assert read(path).digest() == read_csv_table(tmp_path / "a.csv", "other", IdRule()).digest()
