"""Reading a party's CSV file: what is accepted, and how everything else is reported."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.data.ids import IdRule
from common.data.reading import read_csv_table
from common.data.table import Table
from common.data.wording import SHOWN_CASES
from common.errors import ConfigError, DataError

# A text that no message may ever contain: it stands for the value of a cell or an id.
SECRET = "s3cr3t"


def read(tmp_path: Path, content: str | bytes, features: tuple[str, ...] | None = None) -> Table:
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return read_csv_table(path, "ours", IdRule(), features or "all")


def refusal(tmp_path: Path, content: str | bytes, features: tuple[str, ...] | None = None) -> str:
    with pytest.raises(DataError) as caught:
        read(tmp_path, content, features)
    block = caught.value.block()
    assert "a.csv" in block
    assert SECRET not in block
    chained = caught.value.__cause__
    assert chained is None or SECRET not in str(chained)
    return block


def test_ids_stay_text_and_values_become_floats(tmp_path: Path) -> None:
    table = read(tmp_path, "id,x,y\n001,1.5,-2\n1e15, 3 ,+1\n")
    assert table.ids == ("001", "1e15")
    assert table.features == ("x", "y")
    assert table.values.tolist() == [[1.5, -2.0], [3.0, 1.0]]
    assert (table.name, table.rows) == ("ours", 2)
    assert not table.values.flags.writeable


@pytest.mark.parametrize(
    "content",
    [
        b"id,x\n001,1\n002,2\n",
        b"\xef\xbb\xbfid,x\r\n001,1\r\n002,2\r\n",
        b'\xef\xbb\xbf"id","x"\r\n"001","1"\r\n"002","2"',
        b"id,x\n\n001,1\n\n002,2\n\n",
        b"x,id\n1,001\n2,002\n",
    ],
)
def test_marks_line_ends_quotes_blank_lines_and_column_order_make_no_difference(
    tmp_path: Path, content: bytes
) -> None:
    table = read(tmp_path, content)
    assert table.ids == ("001", "002")
    assert table.features == ("x",)
    assert table.column("x").tolist() == [1.0, 2.0]


def test_a_gzipped_file_is_read_like_the_file_in_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfid,x\r\n001,1\r\n"))
    assert read_csv_table(path, "ours", IdRule()).ids == ("001",)


def test_the_name_of_a_file_does_not_say_whether_it_is_packed(tmp_path: Path) -> None:
    assert read(tmp_path, gzip.compress(b"id,x\n001,1\n")).ids == ("001",)
    path = tmp_path / "b.csv.gz"
    path.write_bytes(b"id,x\n001,1\n")
    assert read_csv_table(path, "ours", IdRule()).ids == ("001",)


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"id,x\n" + b"".join(b"%d,1\n" % row for row in range(9000)))[:-9])
    with pytest.raises(DataError, match="not whole gzip data"):
        read_csv_table(path, "ours", IdRule())


def test_line_breaks_and_commas_inside_quotes_do_not_make_rows(tmp_path: Path) -> None:
    content = 'id,name,x\n1,"a, ""b""\nc",1\n2,d,2\n'
    assert read(tmp_path, content, ("x",)).values.tolist() == [[1.0], [2.0]]
    assert "column 'name'" in refusal(tmp_path, content)


def test_a_column_nobody_asked_for_may_hold_anything(tmp_path: Path) -> None:
    table = read(tmp_path, b"id,note,x\n1,\xff\xfe,1\n2,NA,2\n", ("x",))
    assert table.features == ("x",)


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    assert read(tmp_path, "id,x,y\n1,2,3\n", ("y", "x")).values.tolist() == [[3.0, 2.0]]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_numbers_are_read_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, values: list[float]
) -> None:
    path = tmp_path_factory.mktemp("exact") / "a.csv"
    path.write_text("id,x\n" + "".join(f"{row},{value!r}\n" for row, value in enumerate(values)))
    read_back = read_csv_table(path, "ours", IdRule()).column("x")
    assert read_back.tobytes() == np.array(values).tobytes()


@pytest.mark.parametrize(
    ("cell", "fault"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("NA", "'na' for a missing value"),
        ("nan", "'nan' for a missing value"),
        ("?", "'?' for a missing value"),
        ("inf", "infinite or too large"),
        ("-Infinity", "infinite or too large"),
        ("1e999", "infinite or too large"),
        ('"3,5"', "decimal comma"),
        ('"1,234.5"', "thousands separators"),
        ("12 kg", "a number with a unit"),
        ("12%", "a number with a unit"),
        ("1_000", "text, not a number"),
        ("0x1F", "text, not a number"),
        (SECRET, "text, not a number"),
    ],
)
def test_a_cell_that_is_no_number_is_named_by_row_line_column_and_kind(
    tmp_path: Path, cell: str, fault: str
) -> None:
    block = refusal(tmp_path, f'id,x,y\n"1\n",2,3\n2,{cell},4\n')
    assert "1 cell in 1 column" in block
    assert "column 'x': " in block
    assert f"{fault}: row 2 (line 4)\n" in block


def test_all_faulty_columns_are_reported_at_once_with_first_cases_and_counts(tmp_path: Path) -> None:
    rows = "".join(f"{row},,{SECRET if row == 3 else row}\n" for row in range(1, 10))
    block = refusal(tmp_path, "id,x,y\n" + rows)
    assert "10 cells in 2 columns" in block
    assert "column 'x': empty: row 1 (line 2), row 2 (line 3)" in block
    assert "row 5 (line 6), … (9 in all)" in block
    assert f"row {SHOWN_CASES + 1} " not in block
    assert "column 'y': text, not a number: row 3 (line 4)" in block


@pytest.mark.parametrize(
    ("content", "claim"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("id,x\n", "a header and no rows"),
        ("id,x", "a header and no rows"),
        ("id;a1;a2\n1;2;3;4\n", "one column 'id;a1;a2' found"),
        ("id\ta1\n1\t2\t3\n", "delimiter '\\t'?"),
        ("sep=;\nid;x\n1;2\n", "Excel's sep= line"),
        ("key,x\n1,2\n", "has no column 'id'"),
        ("ID,x\n1,2\n", "did you mean 'ID'?"),
        ("id\n1\n", "no column besides the id column"),
        (",id,x\n0,1,2\n", "column number 1 of 3"),
        ("id,x,x\n1,2,3\n", "more than one column called 'x'"),
        ("id,id\n1,2\n", "more than one column called 'id'"),
        (f"id,x\n1,2,{SECRET}\n2,3\n3\n", "row 1 (line 2) has 3; row 3 (line 4) has 1"),
        (f'id,x\n1,"{SECRET}\n2,3\n', "text, not a number: row 1 (line 2)"),
        (f'id,x\n"1,{SECRET}\n2,",3\n', "row 1 (line 2)"),
        (f"id,x\n1,2\n3,{'9' * 5_000_000}\n", "not well-formed CSV"),
        (b"id,x\n\xc3\xa4,2\n\xe4,3\n", "line 3 (the first such line)"),
        (b"id,x\n\x81,2\n1,3\n", "line 2 (the first such line)"),
        (b"id,\x81\n1,2\n", "line 1 (the first such line)"),
        ("id,x\n1,2\n".encode("utf-16-le"), "without a byte order mark"),
        (b"PAR1" + bytes(20), "Parquet"),
        (b"PK\x03\x04" + bytes(20), "Excel"),
        (b"SQLite format 3\0" + bytes(20), "a SQLite database"),
        (b"BZh91AY", "bzip2"),
        (f"id,x\n{SECRET},1\n2,2\n{SECRET} ,3\n", "row 3 (line 4) repeats row 1"),
        ("id,x\n1,1\n ,2\n", "the id is missing in 1 row"),
    ],
)
def test_an_unusable_file_is_refused_with_what_and_where(
    tmp_path: Path, content: str | bytes, claim: str
) -> None:
    assert claim in refusal(tmp_path, content)


@pytest.mark.parametrize(
    "content", [f"{SECRET},0.5\n2,1\n", f"{SECRET};0.5\n2;1\n", f"{SECRET},7,7\n2,1,1\n"]
)
def test_a_first_line_of_data_is_not_printed_as_if_it_were_a_header(tmp_path: Path, content: str) -> None:
    refusal(tmp_path, content)


def test_a_file_that_is_not_there_or_is_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        read_csv_table(tmp_path / "none.csv", "ours", IdRule())
    with pytest.raises(DataError, match="is a directory"):
        read_csv_table(tmp_path, "ours", IdRule())


def test_a_listed_feature_must_exist_and_not_be_the_id(tmp_path: Path) -> None:
    assert "did you mean 'bmi'?" in refusal(tmp_path, "id,bmi,age\n1,2,3\n", ("bmj",))
    with pytest.raises(ConfigError, match="also listed as a feature"):
        read(tmp_path, "id,x\n1,2\n", ("id", "x"))


def test_a_table_shows_neither_ids_nor_values_when_printed(tmp_path: Path) -> None:
    assert SECRET not in repr(read(tmp_path, f"id,x\n{SECRET},12.625\n"))
    assert "12.625" not in repr(read(tmp_path, f"id,x\n{SECRET},12.625\n"))


def test_columns_and_rows_can_be_picked(tmp_path: Path) -> None:
    table = read(tmp_path, "id,x,y,z\n1,2,3,4\n5,6,7,8\n")
    assert table.without("y").features == ("x", "z")
    assert table.select(["z", "x"]).values.tolist() == [[4.0, 2.0], [8.0, 6.0]]
    assert table.take(np.array([1])).ids == ("5",)
    with pytest.raises(DataError, match="no column 'w'"):
        table.column("w")
    assert math.isclose(float(table.column("y").sum()), 10.0)


def test_a_digest_changes_with_every_id_name_value_and_with_the_order(tmp_path: Path) -> None:
    content = "id,x,y\n1,2,3\n4,5,6\n"
    variants = [
        "id,x,y\n4,5,6\n1,2,3\n",
        "id,x,z\n1,2,3\n4,5,6\n",
        "id,x,y\n1,2,3\n4,5,7\n",
        "id,x,y\n7,2,3\n4,5,6\n",
    ]
    digests = {read(tmp_path, text).digest() for text in (content, *variants)}
    assert len(digests) == 5
    assert read(tmp_path, content).digest() in digests
