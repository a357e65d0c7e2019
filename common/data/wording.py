"""How messages count, list and locate: first few cases and a total, never the content of a cell."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from common.errors import DataError

# How many cases an error lists before it only counts them.
SHOWN_CASES = 5
# How many column names an error lists.
SHOWN_NAMES = 12


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return "1 row", "2 rows"."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def listed(shown: Sequence[str], total: int) -> str:
    """Return the first few cases, and how many there are when these are not all."""
    more = f", … ({total:,} in all)" if total > len(shown) else ""
    return ", ".join(shown) + more


def quoted(names: Sequence[str], shown: int = SHOWN_NAMES) -> str:
    """Return column names in quotes, the first few of them."""
    more = f", … ({len(names):,} in all)" if len(names) > shown else ""
    return ", ".join(repr(name) for name in names[:shown]) + more


def no_such_columns(label: str, absent: Sequence[str], present: Sequence[str]) -> DataError:
    """Return the error for columns that a source does not have."""
    close = difflib.get_close_matches(
        absent[0].strip().lower(), [name.strip().lower() for name in present], 1
    )
    if close:
        meant = next(name for name in present if name.strip().lower() == close[0])
        advice = f"did you mean {meant!r}?"
    else:
        advice = f"the columns are {quoted(present)}"
    return DataError(
        f"{label} has no column {quoted(absent, SHOWN_CASES)}", where=f"{label}, header", advice=advice
    )
