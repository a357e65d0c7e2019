"""LIBSVM text becomes ids, labels and sparse columns, or an error that names file, row and line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from common.data.ids import IdRule
from common.data.preparation import Preparation
from common.data.reading import Label, TableRequest, open_source, read_table
from common.data.source import LibsvmFile
from common.errors import DataError

TEXT = "+1 1:0.5 7:2 # a comment\n\n# a whole line of it\n-1 qid:3 3:-1.25\n+1\n-1 1:4 3:1e-3 9:0\n"
DENSE = [[0.5, 0, 2], [0, -1.25, 0], [0, 0, 0], [4, 1e-3, 0]]


def read(tmp_path: Path, text: str | bytes, *, ids: str | None = None, request=None, **declared):
    path = tmp_path / "rows.libsvm"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    beside = None
    if ids is not None:
        beside = tmp_path / "ids.csv"
        beside.write_text(ids)
    return read_table(
        open_source(LibsvmFile(path, beside, **declared)), request or TableRequest("d", IdRule())
    )


def labelled(**settings):
    return TableRequest("d", IdRule(), label=Label("label", **settings))


def test_numbers_become_columns_and_what_is_not_there_is_zero(tmp_path):
    table = read(tmp_path, TEXT)
    assert table.features == ()
    assert table.sparse.names == ("1", "3", "7")  # column 9 holds nothing but a zero
    assert np.array_equal(table.sparse.matrix.toarray(), DENSE)
    assert table.dense().features == ("1", "3", "7")
    assert np.array_equal(table.dense().values, DENSE)


def test_a_passive_party_does_not_keep_the_first_field(tmp_path):
    assert read(tmp_path, TEXT).columns == ()


def test_the_active_party_gets_it_under_the_declared_name(tmp_path):
    table = read(tmp_path, TEXT, label="income", request=TableRequest("d", IdRule(), label=Label("income")))
    assert table.column("income").tolist() == [1, -1, 1, -1]
    with pytest.raises(DataError, match="no column 'y'"):
        read(tmp_path, TEXT, request=TableRequest("d", IdRule(), label=Label("y")))


@pytest.mark.parametrize("positive", ["1", "+1", "1.0"])
def test_a_positive_value_is_compared_as_a_number(tmp_path, positive):
    table = read(tmp_path, TEXT.replace("-1", "3"), request=labelled(positive=positive))
    assert table.column("label").tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: b"\xef\xbb\xbf" + data])
def test_gzip_and_a_byte_order_mark_change_nothing(tmp_path, pack):
    table = read(tmp_path, pack(TEXT.replace("\n", "\r\n").encode()), request=labelled())
    assert np.array_equal(table.sparse.matrix.toarray(), DENSE)


def test_ids_are_row_numbers_and_the_report_says_so(tmp_path):
    table = read(tmp_path, TEXT)
    assert table.ids == ("1", "2", "3", "4")
    assert "row numbers" in " ".join(table.intake.sentences())


def test_ids_come_from_a_csv_file_beside_by_the_id_rule(tmp_path):
    request = TableRequest("d", IdRule(column="customer", pad_zeros=3, duplicates="first"))
    table = read(tmp_path, TEXT, ids="customer,city\n1,x\n2,y\n001,z\n4,z\n", request=request)
    assert table.ids == ("001", "002", "004")
    assert np.array_equal(table.sparse.matrix.toarray(), [DENSE[0], DENSE[1], DENSE[3]])
    assert table.intake.dropped == {"with a duplicate id, of which the first row was kept": 1}


def test_another_number_of_ids_than_rows_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"3 ids for 4 rows of .*rows\.libsvm"):
        read(tmp_path, TEXT, ids="id\n1\n2\n3\n")
    with pytest.raises(DataError, match="no column 'id'"):
        read(tmp_path, TEXT, ids="uid\n1\n2\n3\n4\n")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("spam 1:2", "a label that is no number"),
        ("1,0 1:2", "a label that is no number"),
        ("inf 1:2", "a label that is not finite"),
        ("1:2 2:3", "a label that is no number"),
        ("1 2:spam", "a field that is not number:value"),
        ("1 2: 3", "a field that is not number:value"),
        ("1 spam", "a field that is not number:value"),
        ("1 -2:3", "a field that is not number:value"),
        ("1 3:1 2:1", "column numbers that do not ascend"),
        ("1 3:1 3:1", "column numbers that do not ascend"),
        ("1 0:1", "a column number 0"),
        ("1 99999999999:1", "beyond 2,147,483,646"),
        ("1 9999999999999999999999:1", "beyond 2,147,483,646"),
        ("1 2:nan", "a value that is missing or not finite"),
        ("1 2:1e999", "a value that is missing or not finite"),
    ],
)
def test_what_is_no_libsvm_text_is_refused_with_row_and_line_and_without_its_content(tmp_path, line, fault):
    with pytest.raises(DataError) as caught:
        read(tmp_path, TEXT + f"\n{line}\n1 1:1\n{line}\n")
    assert "rows.libsvm" in caught.value.where
    assert f"{fault}" in caught.value.where
    assert "row 5 (line 8), row 7 (line 10)" in caught.value.where
    assert "spam" not in str(caught.value)


def test_an_empty_file_and_a_torn_archive_are_refused(tmp_path):
    with pytest.raises(DataError, match="has no rows"):
        read(tmp_path, "# nothing\n\n")
    with pytest.raises(DataError, match="not whole gzip data"):
        read(tmp_path, gzip.compress(TEXT.encode() * 100)[:-20])
    with pytest.raises(DataError, match="there is no file"):
        open_source(LibsvmFile(tmp_path / "absent", None))


def test_columns_may_be_counted_from_zero(tmp_path):
    table = read(tmp_path, "1 0:2 1:3\n", first_number=0)
    assert table.sparse.names == ("0", "1")


def test_listed_columns_are_the_only_ones(tmp_path):
    table = read(tmp_path, TEXT, request=TableRequest("d", IdRule(), features=("7", "1")))
    assert table.sparse.names == ("1", "7")
    assert np.array_equal(table.sparse.matrix.toarray(), np.array(DENSE)[:, [0, 2]])
    with pytest.raises(DataError, match="no column '8'"):
        read(tmp_path, TEXT, request=TableRequest("d", IdRule(), features=("8",)))


def test_a_missing_label_is_an_error_or_dropped_and_counted(tmp_path):
    text = TEXT.replace("+1\n", "nan\n")
    with pytest.raises(DataError) as caught:
        read(tmp_path, text, request=labelled())
    assert "column 'label': empty: row 3 (line 5)" in caught.value.where
    table = read(tmp_path, text, request=labelled(missing="drop"))
    assert table.ids == ("1", "2", "4")
    assert table.intake.dropped == {"without a label": 1}
    assert len(table.sparse) == 3


def test_the_digest_knows_every_cell(tmp_path):
    first = read(tmp_path, TEXT).digest()
    assert read(tmp_path, TEXT).digest() == first
    assert read(tmp_path, TEXT.replace("7:2", "7:3")).digest() != first
    assert read(tmp_path, TEXT.replace("7:2", "8:2")).digest() != first


def test_rows_are_taken_in_any_order(tmp_path):
    table = read(tmp_path, TEXT, request=labelled()).take(np.array([3, 0]))
    assert table.ids == ("4", "1")
    assert table.column("label").tolist() == [-1, 1]
    assert np.array_equal(table.sparse.matrix.toarray(), [DENSE[3], DENSE[0]])


def test_preparation_is_kept(tmp_path):
    rules = Preparation(scale="max_abs")
    assert read(tmp_path, TEXT, request=TableRequest("d", IdRule(), preparation=rules)).preparation == rules
