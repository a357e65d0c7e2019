"""Reads the answer to one query through an Arrow database driver (ADBC): SQLite, PostgreSQL."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from common.data.source import SqlQuery
from common.data.wording import SHOWN_CASES, quoted
from common.errors import ConfigError, DataError

SQLITE = "sqlite:"
_DRIVERS = {
    "sqlite": ("adbc_driver_sqlite.dbapi", "adbc-driver-sqlite"),
    "postgresql": ("adbc_driver_postgresql.dbapi", "colonnade[postgres]"),
    "postgres": ("adbc_driver_postgresql.dbapi", "colonnade[postgres]"),
}
# These speak of the query's own names. Any other message of a database may quote a value, and is not shown.
_ABOUT_NAMES = re.compile(r"no such (table|column|function): \S+|near .{1,40}: syntax error")
_CONNECTION = re.compile(r"connection to server at [^\n]* failed: ([^\n]*)")
_NAME_STATES = ("42", "3D", "3F", "28")
# SQLite has no types that bind; the driver settles each column's from its first rows.
_CAST_ADVICE = "write the conversion in the query, such as CAST(id AS TEXT)"


@dataclass(frozen=True, slots=True)
class SqlSource:
    """A query that has been tried, so that its columns are known.

    Attributes:
        label: The URL without user and password.
    """

    label: str
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    declared: SqlQuery = field(repr=False)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns of the answer with the types that the database gives them.

        Raises:
            DataError: The database failed half-way.
        """
        with _answer(self.declared, self.label) as reader:
            while True:
                with _plain(self.label):
                    batch = next(reader, None)
                if batch is None:
                    return
                if batch.num_rows:
                    yield batch.select(list(names))

    def locate(self, rows: Sequence[int]) -> Mapping[int, str]:
        """Return "row 3 of the answer"; give the query an ORDER BY to find it again."""
        return {row: f"row {row} of the answer" for row in rows}


def open_sql(declared: SqlQuery) -> SqlSource:
    """Run the query and look at its columns; rows are fetched later.

    Raises:
        ConfigError: The URL names no database that can be read, or its driver is not installed.
        DataError: The database cannot be reached, or refuses the query.
    """
    label = _label(declared.url)
    columns = _columns(declared, label)
    repeated = [name for name, times in Counter(columns).items() if times > 1]
    if repeated:
        raise DataError(
            f"the query answers more than one column called {quoted(repeated, SHOWN_CASES)}",
            where=label,
            advice="name the columns with AS",
        )
    notes: tuple[str, ...] = ()
    if "order by" not in " ".join(declared.query.lower().split()):
        notes = (f"{label}: the query has no ORDER BY; a database may answer in another order next time",)
    return SqlSource(label, columns, notes, declared)


def _columns(declared: SqlQuery, label: str) -> tuple[str, ...]:
    if declared.url.startswith(SQLITE):
        # SQLite answers row by row, so that the first rows cost little.
        with _answer(declared, label) as reader:
            return tuple(reader.schema.names)
    driver = _driver(declared.url)
    with (
        _plain(label),
        closing(driver.connect(declared.url)) as connection,
        closing(connection.cursor()) as cursor,
    ):
        return tuple(cursor.adbc_execute_schema(_statement(declared)).names)


def _statement(declared: SqlQuery) -> str:
    # The driver wraps the query into another statement, where a semicolon would be an error.
    return declared.query.strip().rstrip(";")


@contextmanager
def _answer(declared: SqlQuery, label: str) -> Iterator[pa.RecordBatchReader]:
    driver = _driver(declared.url)
    with ExitStack() as open_handles:
        with _plain(label):
            # Closed in the opposite order: a driver refuses to close a connection below an open cursor.
            connection = open_handles.enter_context(closing(_connected(driver, declared.url, label)))
            cursor = open_handles.enter_context(closing(connection.cursor()))
            cursor.execute(_statement(declared))
            reader = open_handles.enter_context(closing(cursor.fetch_record_batch()))
        yield reader


def _connected(driver: ModuleType, url: str, label: str) -> Any:
    if not url.startswith(SQLITE):
        return driver.connect(url)
    path = sqlite_path(url)
    if not path.is_file():
        raise DataError(f"there is no file {path}", where=label, advice="check the URL in the party file")
    # Read-only, so that nothing in a party file can change the data.
    return driver.connect(f"file:{quote(str(path))}?mode=ro")


def has_driver_name(url: str) -> bool:
    """Tell whether a URL begins with the name of a database that can be read."""
    return url.split(":", 1)[0] in _DRIVERS


def sqlite_path(url: str) -> Path:
    """Return the file of sqlite:///relative.db, sqlite:////absolute.db, or sqlite:any.db."""
    return Path(url.removeprefix(SQLITE).removeprefix("///"))


def _driver(url: str) -> ModuleType:
    scheme = url.split(":", 1)[0].lower()
    if scheme not in _DRIVERS:
        raise ConfigError(
            "the URL of an sql source does not name a database that can be read",
            advice=f"it begins with one of {', '.join(f'{name}:' for name in _DRIVERS)}",
        )
    module, package = _DRIVERS[scheme]
    try:
        return importlib.import_module(module)
    except ImportError as failure:
        raise ConfigError(
            f"the driver for {scheme} is not installed", advice=f"pip install '{package}'"
        ) from failure


def _label(url: str) -> str:
    """Return the URL without user, password and options, any of which may be secret."""
    if url.startswith(SQLITE):
        return f"{SQLITE}{sqlite_path(url)}"
    scheme, rest = url.split(":", 1)
    # By hand, because a password may hold any of the marks that a URL is made of.
    shown = rest.removeprefix("//").rpartition("@")[2]
    return f"{scheme}://{re.split('[?#]', shown)[0]}"


@contextmanager
def _plain(label: str) -> Iterator[None]:
    """Turn what a driver raises into a DataError without the content of a cell."""
    try:
        yield
    except (DataError, ConfigError):
        raise
    except Exception as failure:
        raise _database_error(failure, label) from None


def _database_error(failure: Exception, label: str) -> DataError:
    text, state = str(failure), str(getattr(failure, "sqlstate", None) or "")
    if "Type mismatch in column" in text:
        return DataError(
            "a column of the answer holds values of different types", where=label, advice=_CAST_ADVICE
        )
    about = _ABOUT_NAMES.search(text)
    if about:
        return DataError(f"the database refuses the query: {about.group()}", where=label)
    if state[:2] in _NAME_STATES:
        first = next((line for line in text.splitlines() if "ERROR" in line or "FATAL" in line), "")
        return DataError(f"the database refuses the query (SQLSTATE {state}): {first.strip()}", where=label)
    if "Failed to connect" in text and not state:
        # A complaint about the URL itself would quote it, with its password.
        reason = _CONNECTION.search(text)
        return DataError(
            f"the database cannot be reached{f': {reason.group(1)}' if reason else ''}",
            where=label,
            advice="check host, port, database, user and password, with psql for example",
        )
    return DataError(
        f"the database failed{f' (SQLSTATE {state})' if state else ''}",
        where=label,
        advice="run the query by hand; its message may quote data and is not repeated here",
    )
