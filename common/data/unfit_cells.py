"""The error for cells that cannot serve: which columns, which rows, what kind, and what to declare."""

from __future__ import annotations

from collections.abc import Mapping

from common.data.numbers import EMPTY, MARKER_SUFFIX, OTHER_DECIMAL, TEXT, Faults
from common.data.source import Located
from common.data.wording import SHOWN_CASES, counted, listed
from common.errors import DataError

# Of many columns the first ones are described, with fewer rows of each kind: an error should fit on a screen.
_FEW_COLUMNS = 2
_SHOWN_COLUMNS = 3
_CASES_OF_MANY = 3


def unfit_cells(source: Located, faults: Mapping[str, Faults], label: str | None) -> DataError:
    """Return one error for all columns; `label` is the one that is to be predicted."""
    total = sum(column.total for column in faults.values())
    first = dict(list(faults.items())[:_SHOWN_COLUMNS])
    cases = SHOWN_CASES if len(faults) <= _FEW_COLUMNS else _CASES_OF_MANY
    rows = sorted(
        {row for column in first.values() for kind in column.first.values() for row in kind[:cases]}
    )
    places = source.locate(rows)
    shown = [f"column {name!r}: {_described(places, column, cases)}" for name, column in first.items()]
    left = len(faults) - len(first)
    more = f"; and {counted(left, 'more column')}" if left else ""
    named = ", ".join(repr(name) for name in first)
    return DataError(
        f"{counted(total, 'cell')} in {counted(len(faults), 'column')} "
        f"({named}{', …' if more else ''}) cannot serve as they are",
        where=f"{source.label}, {'; '.join(shown)}{more}",
        advice=_advice(faults, label),
    )


def _described(places: Mapping[int, str], column: Faults, cases: int) -> str:
    return "; ".join(
        f"{fault}: {listed([places[row] for row in rows[:cases]], column.counts[fault])}"
        for fault, rows in column.first.items()
    )


def _advice(faults: Mapping[str, Faults], label: str | None) -> str:
    texts = [name for name, column in faults.items() if TEXT in column.counts]
    # In a column of texts an NA is one text among others.
    kinds = {fault for name, column in faults.items() if name not in texts for fault in column.counts}
    advice = ["mend these cells, or list only usable columns under the dataset's features"]
    markers = sorted(kind.removesuffix(MARKER_SUFFIX) for kind in kinds if kind.endswith(MARKER_SUFFIX))
    if markers:
        advice.append(f"declare missing_values: ['', {', '.join(markers)}] and a rule under missing")
    elif any(EMPTY in column.counts for name, column in faults.items() if name != label):
        advice.append("declare a rule under missing, such as mean or drop")
    if label in faults and EMPTY in kinds:
        advice.append("declare missing_labels: drop")
    if label in texts:
        advice.append("name the label's value that counts as positive in the job, under data")
        texts.remove(label)
    if OTHER_DECIMAL[","] in kinds:
        advice.append('declare decimal: "," under source')
    if texts:
        shown = ", ".join(f"{name}: categorical" for name in texts[:SHOWN_CASES])
        advice.append(f"declare types: {{{shown}}} if these are categories")
    return "; or ".join(advice)
