"""Delimiters and encodings: declared, or found out and reported."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from common.data.csv_source import open_csv
from common.data.preparation import DEFAULT, Preparation
from common.data.reading import TableRequest, read_table
from common.data.source import CsvFile
from common.data.table import Table
from common.errors import DataError

CITIES = "id,city,x\n1,Zürich,1\n2,Genève,2\n3,Bern,3\n"
RULES = Preparation(types={"city": "categorical"})


def read(tmp_path: Path, content: bytes, **declared: str) -> Table:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    return read_table(open_csv(CsvFile(path, **declared)), TableRequest("ours", preparation=RULES))


def cities(table: Table) -> list[str]:
    return table.cells("city").texts().tolist()


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (CITIES.encode(), None),
        (b"\xef\xbb\xbf" + CITIES.encode(), None),
        (CITIES.encode("cp1252"), "encoding cp1252 was detected"),
        (CITIES.encode("utf-16"), "encoding utf-16 was detected"),
        (b"\xfe\xff" + CITIES.encode("utf-16-be"), "encoding utf-16 was detected"),
        (CITIES.replace(",", ";").encode(), "delimiter ';' was detected"),
        (CITIES.replace(",", "\t").encode(), "delimiter 'tab' was detected"),
        (CITIES.replace(",", "|").replace("\n", "\r\n").encode(), "delimiter '|' was detected"),
        (gzip.compress(CITIES.encode("cp1252"), mtime=0), "encoding cp1252 was detected"),
        (CITIES.replace("\n", "\r").encode(), None),
    ],
)
def test_encoding_and_delimiter_are_found_out_and_reported(
    tmp_path: Path, content: bytes, note: str | None
) -> None:
    table = read(tmp_path, content)
    assert cities(table) == ["Zürich", "Genève", "Bern"]
    assert table.ids == ("1", "2", "3")
    notes = table.intake.sentences()
    assert len(notes) == (note is not None)
    assert note is None or note in notes[0]


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-16-le", "cp850"])
def test_a_declared_encoding_is_used_and_not_reported(tmp_path: Path, encoding: str) -> None:
    content = CITIES.replace(",", ";").encode(encoding)
    table = read(tmp_path, content, encoding=encoding, delimiter=";")
    assert cities(table) == ["Zürich", "Genève", "Bern"]
    assert table.intake.sentences() == []


def test_a_file_of_mixed_encodings_is_refused_instead_of_guessed(tmp_path: Path) -> None:
    content = CITIES.encode() + "4,Zürich,4\n".encode("cp1252")
    with pytest.raises(DataError, match="not UTF-8 text") as caught:
        read(tmp_path, content)
    assert "line 5 (the first such line)" in caught.value.where
    assert "encoding" in caught.value.advice


def test_a_declared_encoding_that_is_wrong_is_an_error_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not UTF-8 text") as caught:
        read(tmp_path, CITIES.encode("cp1252"), encoding="utf-8")
    assert "line 2" in caught.value.where


def test_text_in_two_unicode_spellings_is_one_category(tmp_path: Path) -> None:
    content = "id,city,x\n1,Zu\u0308rich,1\n2, Zürich ,2\n"
    assert read(tmp_path, content.encode()).cells("city").categories == ("Zürich",)


def test_a_declared_delimiter_is_not_second_guessed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="delimiter ';'"):
        read(tmp_path, CITIES.replace(",", ";").encode(), delimiter=",")


def test_a_quoted_delimiter_does_not_mislead_the_detection(tmp_path: Path) -> None:
    content = 'id,city,x\n1,"a;b;c;d",1\n2,"e;f",2\n'
    assert cities(read(tmp_path, content.encode())) == ["a;b;c;d", "e;f"]


def test_a_decimal_comma_is_read_when_it_is_declared(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id;x\n1;3,5\n2;-,25\n3;1e2\n4;7\n")
    request = TableRequest("ours", preparation=Preparation(decimal=","))
    assert read_table(open_csv(CsvFile(path)), request).column("x").tolist() == [3.5, -0.25, 100.0, 7.0]
    with pytest.raises(DataError) as caught:
        read_table(open_csv(CsvFile(path)), TableRequest("ours"))
    assert "a number with a decimal comma: row 1 (line 2)" in caught.value.where
    assert 'decimal: ","' in caught.value.advice


def test_rows_are_located_beyond_the_first_block_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [f"{row},{row / 7!r}" for row in range(1, 120_001)]
    rows[99_999] = "100000,oops"
    path.write_text("id,x\n" + "\n".join(rows) + "\n")
    assert path.stat().st_size > 2 << 20
    with pytest.raises(DataError) as caught:
        read_table(open_csv(CsvFile(path)), TableRequest("ours"))
    assert "text, not a number: row 100000 (line 100001)" in caught.value.where
    rows[99_999] = "100000"
    path.write_text("id,x\n" + "\n".join(rows) + "\n")
    with pytest.raises(DataError, match="1 row without"):
        read_table(open_csv(CsvFile(path)), TableRequest("ours"))


def test_a_large_file_is_read_to_the_last_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,x,city\n" + "".join(f"{row:07d},{row},c{row % 11}\n" for row in range(150_000)))
    request = TableRequest("ours", preparation=Preparation(types={"city": "categorical", DEFAULT: "numeric"}))
    table = read_table(open_csv(CsvFile(path)), request)
    assert (table.rows, table.ids[0], table.ids[-1]) == (150_000, "0000000", "0149999")
    assert table.column("x").sum() == 150_000 * 149_999 / 2
    assert table.cells("city").texts()[149_999] == f"c{149_999 % 11}"
