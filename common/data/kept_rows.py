"""Which rows of a source stay: by their ids first, then by what is missing; every other row is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from common.data.ids import IdRule
from common.data.source import Located
from common.data.wording import SHOWN_CASES, counted, listed
from common.errors import DataError
from common.types import Ints


@dataclass(slots=True)
class KeptRows:
    """Rows that are still in, and how many went for which reason."""

    mask: npt.NDArray[np.bool_]
    dropped: dict[str, int] = field(default_factory=dict)

    def drop(self, rows: npt.NDArray[np.bool_], reason: str) -> None:
        """Drop the rows that are still in and marked here."""
        count = int(np.count_nonzero(self.mask & rows))
        if count:
            self.mask &= ~rows
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    def among(self, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
        """Return the positions of the marked rows that are still in."""
        return np.flatnonzero(self.mask & rows)

    def positions(self) -> Ints:
        """Return the positions of the rows that are still in."""
        return np.flatnonzero(self.mask).astype(np.int64)

    def reasons(self) -> str:
        """Return how many rows went for which reason, in words."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())


def rows_by_id(source: Located, ids: Sequence[str], rule: IdRule) -> KeptRows:
    """Return the rows whose id is there and comes once, by the rule.

    Raises:
        DataError: An id is missing or comes again where that is an error, or holds a line break.
    """
    kept = KeptRows(np.ones(len(ids), dtype=np.bool_))
    empty = np.fromiter((not one for one in ids), np.bool_, len(ids))
    if rule.missing == "error" and empty.any():
        raise _error(
            source,
            rule,
            f"the id is missing in {counted(int(empty.sum()), 'row')}",
            empty,
            "give every row an id, remove the row, or declare `missing: drop` under id",
        )
    kept.drop(empty, "without an id")
    broken = np.fromiter(("\n" in one for one in ids), np.bool_, len(ids))
    if broken.any():
        what = f"the id holds a line break in {counted(int(broken.sum()), 'row')}"
        raise _error(source, rule, what, broken, "look for an unclosed quote")
    _settle_duplicates(kept, source, ids, rule)
    return kept


def _settle_duplicates(kept: KeptRows, source: Located, ids: Sequence[str], rule: IdRule) -> None:
    if _all_differ(ids, kept.positions()):
        return
    positions = kept.positions().tolist()
    if rule.duplicates == "last":
        positions.reverse()
    seen: dict[str, int] = {}
    pairs: list[tuple[int, int]] = []
    again = np.zeros(len(ids), dtype=np.bool_)
    for position in positions:
        first = seen.setdefault(ids[position], position)
        if first != position:
            again[position] = True
            if len(pairs) < SHOWN_CASES:
                pairs.append((position + 1, first + 1))
    if rule.duplicates == "error":
        raise _duplicates(source, rule, pairs, int(again.sum()))
    kept.drop(again, f"with a duplicate id, of which the {rule.duplicates} row was kept")


def _all_differ(ids: Sequence[str], positions: Ints) -> bool:
    """Tell whether ids differ for sure: their hashes do, which take an eighth of the memory of a set."""
    hashes = np.fromiter((hash(ids[position]) for position in positions), np.int64, len(positions))
    hashes.sort()
    return not (hashes[1:] == hashes[:-1]).any()


def _duplicates(source: Located, rule: IdRule, pairs: list[tuple[int, int]], count: int) -> DataError:
    places = source.locate([row for row, _ in pairs])
    shown = [f"{places[row]} repeats row {first}" for row, first in pairs]
    return DataError(
        f"duplicate ids: an id comes again in {counted(count, 'row')} of {source.label}",
        where=f"{source.label}, column {rule.column!r}: {listed(shown, count)}",
        advice="keep one row for each entity, or declare `duplicates: first` or `last` under id",
    )


def _error(source: Located, rule: IdRule, what: str, rows: npt.NDArray[np.bool_], advice: str) -> DataError:
    first = (np.flatnonzero(rows)[:SHOWN_CASES] + 1).tolist()
    shown = listed([*source.locate(first).values()], int(rows.sum()))
    return DataError(
        f"{what} of {source.label}",
        where=f"{source.label}, column {rule.column!r}: {shown}",
        advice=advice,
    )
