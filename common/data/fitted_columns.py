"""What preprocessing learnt about one column, applied without scikit-learn and kept as plain JSON.

scikit-learn fits (common/data/preprocess.py); here its numbers are applied, so that a saved model needs no
pickle and no particular version of it. A test holds both to the same results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from common.data.columns import MISSING_CODE, CategoricalColumn, Column, NumericColumn
from common.data.preparation import MissingRule
from common.errors import DataError
from common.types import Floats, Ints

# How the columns of rare and of missing categories end, as in `city=(other)`.
OTHER = "(other)"
MISSING = "(missing)"


@dataclass(frozen=True, slots=True)
class FittedNumber:
    """(x − shift) / scale, after missing values were filled.

    Attributes:
        name: The column's name.
        missing: The rule for missing values.
        fill: What stands for a missing value; None when there must be none.
        shift: May be seen by the owner of the column alone, as everything learnt.
        scale: Above 0.
    """

    name: str
    missing: MissingRule
    fill: float | None = field(repr=False)
    shift: float = field(repr=False)
    scale: float = field(repr=False)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns of the matrix."""
        return (self.name,)

    def apply(self, column: Column) -> Floats:
        """Return the column's part of the matrix, (n, 1).

        Raises:
            DataError: The column holds categories.
        """
        if not isinstance(column, NumericColumn):
            raise DataError(f"column {self.name!r} was numeric in training and holds categories now")
        values = column.values
        if self.fill is not None:
            values = np.where(column.missing, self.fill, values)
        scaled: Floats = (values - self.shift) / self.scale
        return scaled[:, np.newaxis]

    @property
    def folds(self) -> bool:
        """Whether there is a column for everything unknown: not for numbers."""
        return False

    def unseen(self, column: Column) -> int:
        """Return 0: any number will do."""
        return 0

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values; numbers survive exactly."""
        return {
            "name": self.name,
            "type": "numeric",
            "missing": self.missing,
            "fill": self.fill,
            "shift": self.shift,
            "scale": self.scale,
        }


@dataclass(frozen=True, slots=True)
class FittedCategories:
    """One column of 0 and 1 for each frequent category, and one for all rare ones together.

    Attributes:
        name: The column's name.
        missing: The rule for missing values.
        fill: The category that stands for a missing value; None when there must be none.
        categories: Those with a column of their own, sorted.
        rare: Those that share the column "other", sorted; without any there is no such column, and an
            unseen category is a row of zeros.
    """

    name: str
    missing: MissingRule
    fill: str | None = field(repr=False)
    categories: tuple[str, ...] = field(repr=False)
    rare: tuple[str, ...] = field(repr=False)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns of the matrix, such as city=Basel."""
        other = OTHER
        while other in self.categories:
            other = f"({other})"
        return tuple(f"{self.name}={text}" for text in (*self.categories, *([other] if self.rare else [])))

    @property
    def folds(self) -> bool:
        """Whether there is a column for everything unknown."""
        return bool(self.rare)

    def apply(self, column: Column) -> Floats:
        """Return the column's part of the matrix, (n, outputs).

        Raises:
            DataError: The column holds numbers.
        """
        positions = self._positions(column)
        ones = np.zeros((len(positions), len(self.outputs)))
        known = positions >= 0
        ones[np.flatnonzero(known), positions[known]] = 1.0
        return ones

    def unseen(self, column: Column) -> int:
        """Return the number of rows whose category was not there in training."""
        known = {*self.categories, *self.rare}
        if not isinstance(column, CategoricalColumn):
            return 0
        new = np.array([text not in known for text in column.categories] + [self.fill not in known])
        return int(np.count_nonzero(new[column.codes]))

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "name": self.name,
            "type": "categorical",
            "missing": self.missing,
            "fill": self.fill,
            "categories": list(self.categories),
            "rare": list(self.rare),
        }

    def _positions(self, column: Column) -> Ints:
        """Return the output column of each row, -1 for none."""
        if not isinstance(column, CategoricalColumn):
            raise DataError(f"column {self.name!r} was categorical in training and holds numbers now")
        places = {text: at for at, text in enumerate(self.categories)}
        other = len(self.categories) if self.rare else MISSING_CODE
        # The last entry is what a missing category, code -1, points at.
        texts = [*column.categories, self.fill]
        return np.array([places.get(text or "", other) for text in texts], dtype=np.int64)[column.codes]


FittedColumn: TypeAlias = FittedNumber | FittedCategories


def fitted_from_json(document: Mapping[str, object]) -> FittedColumn:
    """Return what `to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: The document is something else.
    """
    name, rule = _text(document["name"]), document["missing"]
    if rule not in ("error", "drop", "mean", "median", "most_frequent", "zero", "category"):
        raise ValueError("no such rule")
    missing: MissingRule = rule
    if document["type"] == "categorical":
        fill = None if document["fill"] is None else _text(document["fill"])
        return FittedCategories(name, missing, fill, _texts(document["categories"]), _texts(document["rare"]))
    if document["type"] != "numeric":
        raise ValueError("no such type")
    number = None if document["fill"] is None else _number(document["fill"])
    scale = _number(document["scale"])
    if scale <= 0.0:
        raise ValueError("a scale is not positive")
    return FittedNumber(name, missing, number, _number(document["shift"]), scale)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    return value


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError("a list of texts was expected")
    return tuple(_text(value) for value in values)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("a finite number was expected")
    return float(value)
