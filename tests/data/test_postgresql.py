"""PostgreSQL, asked through ADBC: a real server that the test starts for itself."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.data.preparation import DEFAULT, Preparation
from common.data.reading import TableRequest, read_table
from common.data.source import SqlQuery
from common.data.sql_source import open_sql
from common.data.table import Table
from common.errors import DataError

SECRET = "s3cr3t"
TABLE = """
CREATE TABLE customers AS SELECT
    lpad(i::text, 6, '0') AS id,
    (9007199254740992 + i)::bigint AS number,
    gen_random_uuid() AS token,
    (i / 8.0)::numeric(20, 3) AS amount,
    CASE WHEN i % 4 = 0 THEN NULL ELSE i::real END AS visits,
    i % 2 = 0 AS member,
    CASE WHEN i % 5 = 0 THEN NULL ELSE 'NA' END AS city,
    'k'::char(3) AS code,
    now() AS seen,
    CASE WHEN i = 90000 THEN 's3cr3t' ELSE i::text END AS mixed
FROM generate_series(1, 100000) AS i
"""


def _binaries() -> Path | None:
    found = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    candidates = [Path(found).resolve().parent] if found else []
    return next(
        (folder for folder in [*reversed(debian), *candidates] if (folder / "initdb").is_file()), None
    )


def _account() -> pwd.struct_passwd | None:
    """Return who runs the server: never root, which PostgreSQL refuses."""
    if os.geteuid():
        return pwd.getpwuid(os.geteuid())
    return next((one for one in pwd.getpwall() if one.pw_name in ("postgres", "nobody")), None)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Start a cluster of our own on a free port, and stop it again."""
    binaries, account = _binaries(), _account()
    if importlib.util.find_spec("adbc_driver_postgresql") is None:
        pytest.skip("the extra [postgres] is not installed")
    if binaries is None:
        pytest.skip("PostgreSQL is not installed here (Debian: apt-get install postgresql)")
    if account is None:
        pytest.skip("there is no account but root to run PostgreSQL under")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="vfl-pg-"))
    if not os.geteuid():
        os.chown(folder, account.pw_uid, account.pw_gid)
    other = {} if os.geteuid() else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    def run(program: str, *arguments: str) -> None:
        command = [str(binaries / program), "-D", str(folder / "data"), *arguments]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=120, **other)

    options = f"-k {folder} -p {port} -F -c listen_addresses=127.0.0.1"
    try:
        run("initdb", "-A", "trust", "-U", "vfl", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        run("pg_ctl", "-w", "-o", options, "-l", str(folder / "log"), "start")
        try:
            yield f"postgresql://vfl@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def database(server: str) -> str:
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(server) as connection, connection.cursor() as cursor:
        cursor.execute(TABLE)
        connection.commit()
    return server


def read(url: str, query: str, preparation: Preparation | None = None) -> Table:
    return read_table(
        open_sql(SqlQuery(url, query)), TableRequest("ours", preparation=preparation or Preparation())
    )


def test_an_answer_of_many_batches_is_read_whole(database: str) -> None:
    rules = Preparation(
        types={"city": "categorical", "code": "categorical"},
        missing={DEFAULT: "zero", "city": "category", "code": "error"},
    )
    table = read(database, "SELECT id, amount, visits, member, city, code FROM customers ORDER BY id;", rules)
    assert (table.rows, table.ids[0], table.ids[-1]) == (100_000, "000001", "100000")
    assert table.column("amount")[:2].tolist() == [0.125, 0.25]
    assert table.column("member")[:2].tolist() == [0.0, 1.0]
    assert table.cells("visits").missing.sum() == 25_000
    assert table.cells("city").texts()[3:5].tolist() == ["NA", None]
    assert table.cells("code").categories == ("k",)
    assert table.intake.sentences() == []


def test_integers_and_uuids_are_ids_as_text(database: str) -> None:
    query = "SELECT {} AS id, visits FROM customers WHERE visits < 3 ORDER BY number"
    assert read(database, query.format("number")).ids == ("9007199254740993", "9007199254740994")
    assert all(len(one) == 36 and one.count("-") == 4 for one in read(database, query.format("token")).ids)


@pytest.mark.parametrize(
    ("query", "claim"),
    [
        ("SELECT id, nope FROM customers", 'column "nope" does not exist'),
        ("SELECT id FROM clients", 'relation "clients" does not exist'),
        ("SELEC", "syntax error"),
        (
            "SELECT id, mixed::int FROM customers ORDER BY id",
            "the database failed",
        ),
        ("SELECT id, seen FROM customers ORDER BY id", "cannot serve"),
        ("SELECT id, mixed FROM customers ORDER BY id", "1 cell in 1 column"),
    ],
)
def test_what_does_not_serve_is_refused_without_quoting_data(database: str, query: str, claim: str) -> None:
    with pytest.raises(DataError, match=claim) as caught:
        read(database, query)
    assert SECRET not in caught.value.block()


def test_a_database_that_cannot_be_reached_says_why_without_the_password(server: str) -> None:
    user = server.replace("vfl@", f"vfl:{SECRET}@")
    for url, claim in (
        (user.replace("/postgres", "/nothing"), 'database "nothing" does not exist'),
        (f"postgresql://vfl:{SECRET}@127.0.0.1:1/postgres", "Connection refused"),
        (f"postgresql://vfl:{SECRET}@[bad", "."),
    ):
        with pytest.raises(DataError, match=claim) as caught:
            read(url, "SELECT 1 AS id, 2 AS x")
        assert SECRET not in caught.value.block()
        assert caught.value.__cause__ is None
