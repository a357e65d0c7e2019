"""A label of two texts, such as yes and no, as 1 and 0."""

from __future__ import annotations

import math

import numpy as np

from common.data.columns import MISSING_CODE, CategoricalColumn, Codes, NumericColumn, frozen
from common.data.wording import counted
from common.errors import DataError
from common.types import Floats


def zero_one_labels(
    column: CategoricalColumn, name: str, positive: str, source: str
) -> tuple[NumericColumn, str]:
    """Return the label as 1 where it is `positive` and 0 elsewhere, NaN where it is missing, and a note.

    Numbers compare as numbers, so that `positive: 1` also means 1.0 and +1.

    Raises:
        DataError: There are not exactly two values, or none of them is `positive`.
    """
    used = [column.categories[code] for code in np.unique(column.codes[~column.missing])]
    chosen = [text for text in used if _same(text, positive)]
    if not chosen:
        raise DataError(
            f"no row of label {name!r} has the value that the job calls positive",
            where=f"{source}, column {name!r}",
            advice="compare data.positive in the job file with the file, letter by letter",
        )
    if len(used) - len(chosen) != 1:
        values = counted(len(used), "different value")
        raise DataError(f"label {name!r} has {values}; two classes need two", where=source)
    labels = positive_labels(column, positive)
    ones = int(np.nansum(labels))
    note = f"label {name}: {positive!r} counts as 1, the other value as 0"
    return NumericColumn(frozen(labels)), f"{note}; {ones:,} of {len(labels):,} rows are 1"


def label_categories(column: NumericColumn) -> CategoricalColumn:
    """Return labels that were read as numbers as texts, for `zero_one_labels`."""
    values, positions = np.unique(column.values, return_inverse=True)
    texts = [repr(value) for value in values.tolist()]
    codes: Codes = positions.astype(np.int32)
    codes[column.missing] = MISSING_CODE
    return CategoricalColumn(tuple(texts), frozen(codes))


def positive_labels(column: CategoricalColumn, positive: str) -> Floats:
    """Return 1 where a label is `positive` and 0 where it is any other text, NaN where it is missing, (n,).

    New rows may hold one class only, or none: here nothing is counted and nothing refused.
    """
    lookup = np.array([1.0 if _same(text, positive) else 0.0 for text in column.categories] + [math.nan])
    return np.asarray(lookup[column.codes])


def _same(text: str, positive: str) -> bool:
    try:
        return float(text) == float(positive)
    except ValueError:
        return text == positive
