"""SQL: the answer to a query is a table like any other, and a database's messages never quote data."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from common.data.ids import IdRule
from common.data.preparation import Preparation
from common.data.reading import TableRequest, read_table
from common.data.source import SqlQuery
from common.data.sql_source import open_sql
from common.data.table import Table
from common.errors import ConfigError, DataError

SECRET = "s3cr3t"


@pytest.fixture
def database(tmp_path: Path) -> str:
    with sqlite3.connect(tmp_path / "our data.db") as connection:
        connection.execute(
            "CREATE TABLE customers (id TEXT, number INTEGER, x REAL, city TEXT, mixed, empty TEXT)"
        )
        rows = [
            (f"{row:04d}", row + 2**53 + 1, row / 4, None if row % 5 == 0 else "NA", row, None)
            for row in range(3000)
        ]
        rows[2500] = (*rows[2500][:4], SECRET, None)
        connection.executemany("INSERT INTO customers VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.close()
    return f"sqlite:///{tmp_path / 'our data.db'}"


def read(url: str, query: str, rule: IdRule | None = None, **rules: Any) -> Table:
    return read_table(
        open_sql(SqlQuery(url, query)), TableRequest("ours", rule or IdRule(), "all", Preparation(**rules))
    )


def test_an_answer_is_read_with_text_ids_numbers_and_categories(database: str) -> None:
    query = "SELECT id, x, city FROM customers ORDER BY id;"
    table = read(database, query, types={"city": "categorical"}, missing={"city": "category"})
    assert (table.rows, table.ids[:2], table.ids[-1]) == (3000, ("0000", "0001"), "2999")
    assert table.column("x")[:3].tolist() == [0.0, 0.25, 0.5]
    assert table.cells("city").texts()[:2].tolist() == [None, "NA"]
    assert table.intake.sentences() == []


def test_integer_ids_become_their_decimal_text(database: str) -> None:
    table = read(database, "SELECT number AS id, x FROM customers WHERE x < 1 ORDER BY 1")
    assert table.ids[0] == "9007199254740993"


def test_without_an_order_the_report_says_so(database: str) -> None:
    assert "no ORDER BY" in read(database, "SELECT id, x FROM customers").intake.notes[0]


def test_a_column_of_nulls_is_missing_throughout(database: str) -> None:
    with pytest.raises(DataError) as caught:
        read(database, "SELECT id, empty FROM customers ORDER BY id")
    assert "empty: row 1 of the answer" in caught.value.where


@pytest.mark.parametrize(
    ("query", "claim"),
    [
        ("SELECT id, x FROM clients", "no such table: clients"),
        ("SELECT id, xx FROM customers", "no such column: xx"),
        ("SELEC id", "syntax error"),
        ("SELECT id, mixed FROM customers ORDER BY id", "values of different types"),
        ("SELECT id, mixed, json(mixed) FROM customers ORDER BY id", "the database failed|different types"),
        ("SELECT id, x, x FROM customers", "more than one column called 'x'"),
        ("SELECT x FROM customers", "no column 'id'"),
        ("SELECT id, x FROM customers WHERE x < 0", "has no rows"),
        ("SELECT x AS id, x AS y FROM customers", "of type double"),
        ("DELETE FROM customers", "."),
    ],
)
def test_a_query_that_does_not_serve_is_refused_without_quoting_data(
    database: str, query: str, claim: str
) -> None:
    with pytest.raises(DataError, match=claim) as caught:
        read(database, query)
    assert SECRET not in caught.value.block()
    assert caught.value.__cause__ is None
    assert read(database, "SELECT id, x FROM customers").rows == 3000


def test_a_database_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        read(f"sqlite:///{tmp_path / 'none.db'}", "SELECT 1 AS id, 2 AS x")
    assert not (tmp_path / "none.db").exists()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_text("id,x\n1,2\n" * 1000)
    with pytest.raises(DataError, match="the database"):
        read(f"sqlite:///{tmp_path / 'a.db'}", "SELECT * FROM t")


def test_an_unknown_database_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="does not name a database"):
        read("oracle://host/db", "SELECT 1")


def test_neither_password_nor_user_are_shown() -> None:
    declared = SqlQuery(f"postgresql://user:{SECRET}@127.0.0.1:1/db?password={SECRET}", "SELECT 1 AS id")
    assert SECRET not in repr(declared)
    with pytest.raises((DataError, ConfigError)) as caught:
        open_sql(declared)
    assert SECRET not in caught.value.block()
    assert caught.value.__cause__ is None or SECRET not in str(caught.value.__cause__)
