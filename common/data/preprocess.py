"""Preprocessing: each party fits it on its own training rows, keeps it with the model, applies it again.

Fitting is scikit-learn's: SimpleImputer, StandardScaler, MinMaxScaler or MaxAbsScaler, OneHotEncoder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, OneHotEncoder, StandardScaler

from common.data.columns import CategoricalColumn, Column, NumericColumn
from common.data.fitted_columns import MISSING, FittedCategories, FittedColumn, FittedNumber, fitted_from_json
from common.data.preparation import MissingRule, Preparation, Scale
from common.data.sparse_scaling import FittedSparse, fit_sparse
from common.data.table import Table
from common.data.wording import counted
from common.errors import DataError, LocalProtocolError, NumericError
from common.types import Floats

_KIND = "columns"
_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Rows as a model takes them.

    Attributes:
        matrix: (n, d), finite; may be seen by its owner alone.
        notes: What was filled or folded, with counts.
        unseen: Rows with a category that no training row had, by column; columns without any are not in it.
    """

    matrix: Floats = field(repr=False)
    notes: tuple[str, ...]
    unseen: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSparse:
    """Rows as a model takes them, compressed.

    Attributes:
        matrix: scipy.sparse.csr_array, (n, d), finite; may be seen by its owner alone.
        notes: What was filled or folded, with counts.
        unseen: As in `Prepared`.
    """

    matrix: Any = field(repr=False)
    notes: tuple[str, ...]
    unseen: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """What a party's training rows taught about its columns.

    Attributes:
        columns: In the order of the matrix; a categorical one stands for several of its columns.
        constant: Columns without variation on the training rows, up to rounding; they are not in the matrix.
        kept_constant: Such columns that stay, because nothing is scaled.
        sparse: Of sparse columns, which stand last; None where the rows have no such.
        sparse_notes: What fitting those decided.
    """

    columns: tuple[FittedColumn, ...]
    constant: tuple[str, ...] = ()
    kept_constant: tuple[str, ...] = ()
    sparse: FittedSparse | None = None
    sparse_notes: tuple[str, ...] = ()

    @classmethod
    def fit(cls, training: Table, scale: Scale) -> Preprocessing:
        """Learn from the training rows; `scale` is the job's, unless the dataset declares its own.

        Raises:
            NumericError: A column is so large that its variance overflows; names the feature.
            DataError: A column has no value at all, or two columns of the matrix would have one name.
        """
        rules = training.preparation
        scale = rules.scale or scale
        fitted = [
            _fitted(name, column, rules, scale)
            for name, column in zip(training.features, training.columns, strict=True)
        ]
        constant = tuple(one.name for one, varies in fitted if not varies)
        kept = [one for one, varies in fitted if varies or scale == "none"]
        outputs = [name for one in kept for name in one.outputs]
        if len(set(outputs)) < len(outputs):
            twice = sorted({name for name in outputs if outputs.count(name) > 1})
            raise DataError(
                f"{counted(len(twice), 'column')} of the model would have the name of another",
                where=training.source,
                advice="rename a column whose name contains =",
            )
        stays = {one.name for one in kept}
        sparse, notes = (None, ()) if training.sparse is None else fit_sparse(training.sparse, scale)
        return cls(
            tuple(kept),
            tuple(name for name in constant if name not in stays),
            tuple(name for name in constant if name in stays),
            sparse,
            notes,
        )

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of the matrix."""
        dense = tuple(name for column in self.columns for name in column.outputs)
        return dense if self.sparse is None else (*dense, *self.sparse.names)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that the rows must have; a sparse one that they lack is zero."""
        return tuple(column.name for column in self.columns)

    def apply(self, table: Table) -> Prepared:
        """Return the matrix of these rows; columns are matched by name, further ones are not looked at.

        Raises:
            DataError: A column is missing, or has another type than in training.
        """
        if self.sparse is not None:
            raise LocalProtocolError(
                "sparse columns are prepared by apply_sparse, or made dense before fitting"
            )
        return self._dense(table)

    def apply_sparse(self, table: Table) -> PreparedSparse:
        """Return the compressed rows of a table that was fitted with sparse columns; those stand last.

        Raises:
            DataError: A column is missing, or has another type than in training.
        """
        if self.sparse is None or table.sparse is None:
            raise DataError(
                "the rows have sparse columns here and dense ones in training, or the other way round",
                where=table.source,
                advice="bring new rows in the kind of file that training had",
            )
        matrix, notes = self.sparse.apply(table.sparse), tuple(self.sparse.unknown(table.sparse))
        if not self.columns:
            return PreparedSparse(matrix, notes)
        dense = self._dense(table)
        matrix = hstack([csr_array(dense.matrix), matrix], format="csr")
        return PreparedSparse(matrix, (*dense.notes, *notes), dense.unseen)

    def _dense(self, table: Table) -> Prepared:
        matrix = np.empty((table.rows, sum(len(column.outputs) for column in self.columns)))
        notes: list[str] = []
        unseen: dict[str, int] = {}
        begin = 0
        for fitted in self.columns:
            column = table.cells(fitted.name)
            end = begin + len(fitted.outputs)
            matrix[:, begin:end] = block = fitted.apply(column)
            holes = fitted.fill is None and column.missing.any()
            if holes or not np.isfinite(block).all():
                raise DataError(
                    f"column {fitted.name!r} has values that are missing or too large",
                    where=table.source,
                    advice="declare a rule under missing before training",
                )
            notes += _filled(fitted, column)
            if isinstance(fitted, FittedCategories) and (rows := fitted.unseen(column)):
                unseen[fitted.name] = rows
            begin = end
        return Prepared(matrix, tuple(notes), unseen)

    def notes(self) -> list[str]:
        """Return what fitting decided, for a report."""
        notes = [f"column {name} is constant on the training rows and was left out" for name in self.constant]
        notes += [
            f"column {name} is constant on the training rows; nothing is scaled, so it stays"
            for name in self.kept_constant
        ]
        for column in self.columns:
            if isinstance(column, FittedCategories) and column.rare:
                notes.append(
                    f"column {column.name}: {counted(len(column.rare), 'rare category', 'rare categories')} "
                    f"share one column, {column.outputs[-1]}"
                )
        return [*notes, *self.sparse_notes]

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values; numbers survive exactly."""
        return {
            "kind": _KIND,
            "version": _VERSION,
            "columns": [column.to_json() for column in self.columns],
            "constant": list(self.constant),
            **({} if self.sparse is None else {"sparse": self.sparse.to_json()}),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Preprocessing:
        """Return what `to_json` wrote.

        Raises:
            DataError: The document is something else.
        """
        try:
            if document["kind"] != _KIND or document["version"] != _VERSION:
                raise DataError("this is not a saved preprocessing of this version")
            columns, constant = document["columns"], document["constant"]
            if not isinstance(columns, list) or not isinstance(constant, list):
                raise TypeError("lists were expected")
            sparse = FittedSparse.from_json(document["sparse"]) if "sparse" in document else None
            return cls(tuple(map(fitted_from_json, columns)), tuple(map(str, constant)), sparse=sparse)
        except (KeyError, TypeError, ValueError, AttributeError) as failure:
            raise DataError("a saved preprocessing is damaged") from failure


def _filled(fitted: FittedColumn, column: Column) -> Iterator[str]:
    missing = int(np.count_nonzero(column.missing))
    if missing:
        how = "were made a category of their own" if fitted.missing == "category" else "were filled"
        rule = "" if fitted.missing == "category" else f" by the rule {fitted.missing}"
        yield f"column {fitted.name}: {counted(missing, 'missing value')} of {len(column):,} {how}{rule}"
    unseen = fitted.unseen(column)
    if unseen:
        place = fitted.outputs[-1] if fitted.folds else "none of the known ones"
        yield (
            f"column {fitted.name}: {counted(unseen, 'row')} of {len(column):,} with a category that no "
            f"training row had, counted as {place}"
        )


def _fitted(name: str, column: Column, rules: Preparation, scale: Scale) -> tuple[FittedColumn, bool]:
    """Return what was learnt about a column, and whether it varies."""
    if isinstance(column, CategoricalColumn):
        return _fit_categories(name, column, rules)
    return _fit_number(name, column, rules.missing_of(name), scale)


def _fit_number(
    name: str, column: NumericColumn, rule: MissingRule, scale: Scale
) -> tuple[FittedNumber, bool]:
    values = column.values[:, np.newaxis]
    fill: float | None = None
    if rule == "zero":
        fill = 0.0
    elif rule not in ("error", "drop"):
        if column.missing.all():
            raise DataError(f"column {name!r} has no value on any training row", advice="leave it out")
        fill = float(SimpleImputer(strategy=rule).fit(values).statistics_[0])
    if fill is not None:
        values = np.where(column.missing[:, np.newaxis], fill, values)
    with np.errstate(over="ignore", invalid="ignore"):
        scaler = StandardScaler().fit(values)
    mean, spread = float(scaler.mean_[0]), math.sqrt(float(scaler.var_[0]))
    if not (math.isfinite(mean) and math.isfinite(spread)):
        raise NumericError(
            f"feature {name!r} is too large to be standardised", advice="give it in a larger unit"
        )
    # scikit-learn has the rule for "constant up to rounding" and then sets the scale to exactly 1.
    varies = not (float(scaler.scale_[0]) == 1.0 and spread != 1.0)
    shift, width = 0.0, 1.0
    if scale == "standardize":
        shift, width = mean, float(scaler.scale_[0])
    elif scale == "minmax" and varies:
        ranger = MinMaxScaler().fit(values)
        shift, width = float(ranger.data_min_[0]), float(ranger.data_range_[0])
        # Below some 1e-15 it does not divide by the range either.
        varies = not (float(ranger.scale_[0]) == 1.0 and width != 1.0)
    elif scale == "max_abs" and varies:
        width = float(MaxAbsScaler().fit(values).scale_[0])
    return FittedNumber(name, rule, fill, shift, width), varies


def _fit_categories(
    name: str, column: CategoricalColumn, rules: Preparation
) -> tuple[FittedCategories, bool]:
    rule, texts = rules.missing_of(name), column.texts()[:, np.newaxis]
    fill: str | None = None
    if rule == "category":
        fill = MISSING
    elif rule == "most_frequent":
        if column.missing.all():
            raise DataError(f"column {name!r} has no value on any training row", advice="leave it out")
        fill = str(SimpleImputer(strategy=rule, missing_values=None).fit(texts).statistics_[0])
    texts[column.missing] = fill
    encoder = OneHotEncoder(
        handle_unknown="infrequent_if_exist",
        min_frequency=rules.min_frequency,
        max_categories=rules.max_categories,
    ).fit(texts)
    rare = encoder.infrequent_categories_[0]
    rare = () if rare is None else tuple(map(str, rare))
    frequent = tuple(str(text) for text in encoder.categories_[0] if text not in rare)
    fitted = FittedCategories(name, rule, fill, frequent, rare)
    return fitted, len(fitted.outputs) > 1
