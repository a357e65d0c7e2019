"""What a party's columns become before a network: rows of an embedding table, and standardised numbers.

    plan = FieldPlan.fit(training_table, FieldSettings())
    rows = plan.encode(table)            # EncodedRows: indices (n, c), numbers (n, k)

A categorical field is hashed: bucket = 1 + H mod (buckets − 1), H the 64 bits (big-endian) of
BLAKE2b-64(field name ‖ 0 byte ‖ text), UTF-8. So an index depends on nothing but the name, the text and the
number of buckets, in every process and version. Bucket 0 is the missing value. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from common.data.columns import CategoricalColumn, Column
from common.data.preparation import DEFAULT
from common.data.table import Table
from common.errors import ConfigError, DataError
from common.nets.encoded import EncodedRows
from common.nets.field_kinds import BinnedField, FittedField, HashedField, ScaledField, fitted_field
from common.nets.shape import FieldLayout
from common.types import Floats

NumericRule: TypeAlias = Literal["quantile", "log", "standardize"]

_RULES: tuple[NumericRule, ...] = ("quantile", "log", "standardize")
_KIND = "fields"
_VERSION = 1
_FEWEST_BUCKETS = 64
# With 16 buckets for each category that was seen, one in 16 shares its bucket with another at most.
_BUCKETS_PER_CATEGORY = 16
_MOST_BINS = 4096
_MOST_VALUES = 64
# 2^26 rows of 8 numbers are 2 GB: a mistake in the settings, or in a document that is not ours.
_MOST_TABLE_ROWS = 1 << 26


@dataclass(frozen=True, slots=True)
class FieldSettings:
    """How columns become fields.

    Attributes:
        numeric: Rule of numeric columns by name; `default` stands for all others. `quantile`: bins with as
            many training rows each, `log`: bins of equal width in sign(x)·ln(1+|x|), both embedded;
            `standardize`: enters as a number.
        bins: Of a binned column, at most.
        hash_buckets: Rows of a categorical field's table at most; fewer when few categories were seen.
        separators: For categorical columns whose cells hold several values: what stands between them.
        most_values: Of such a cell, how many count.
    """

    numeric: Mapping[str, NumericRule] = field(default_factory=dict)
    bins: int = 32
    hash_buckets: int = 1 << 16
    separators: Mapping[str, str] = field(default_factory=dict)
    most_values: int = 16

    def __post_init__(self) -> None:
        """Refuse what cannot be fitted.

        Raises:
            ConfigError: A number is out of its range, or a rule is unknown.
        """
        if any(rule not in _RULES for rule in self.numeric.values()):
            raise ConfigError(f"a numeric column is one of {', '.join(_RULES)}")
        if not 2 <= self.bins <= _MOST_BINS:
            raise ConfigError(f"bins must be 2 to {_MOST_BINS}")
        if not 2 <= self.hash_buckets < _MOST_TABLE_ROWS:
            raise ConfigError(f"hash_buckets must be at least 2 and below {_MOST_TABLE_ROWS}")
        if not 1 <= self.most_values <= _MOST_VALUES:
            raise ConfigError(f"most_values must be 1 to {_MOST_VALUES}")
        if not all(self.separators.values()):
            raise ConfigError("a separator is at least one character")


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """What a party's training rows taught about its columns: how any row of it is encoded.

    Attributes:
        fields: Embedded ones first, in the order of their tables, then numbers.
    """

    fields: tuple[FittedField, ...]

    def __post_init__(self) -> None:
        """Refuse a plan whose table would not fit a machine.

        Raises:
            ConfigError: It needs too many rows, or there is no field.
        """
        if not self.fields:
            raise ConfigError("a network needs at least one column")
        if self.layout.table_rows > _MOST_TABLE_ROWS:
            raise ConfigError(
                f"the embeddings need {self.layout.table_rows:,} rows", advice="lower hash_buckets"
            )

    @classmethod
    def fit(cls, training: Table, settings: FieldSettings) -> FieldPlan:
        """Learn bins, scales and numbers of categories from training rows.

        Raises:
            ConfigError: The settings name a column that does not exist or has another type.
        """
        learner = FieldLearner(settings)
        for name, column in zip(training.features, training.columns, strict=True):
            learner.add(name, column)
        return learner.plan(training.source)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that the rows must have."""
        return tuple(one.name for one in self.fields)

    @property
    def layout(self) -> FieldLayout:
        """The shape of the network's input."""
        embedded = [one for one in self.fields if not isinstance(one, ScaledField)]
        return FieldLayout(
            tuple(one.buckets for one in embedded),
            tuple(one.values if isinstance(one, HashedField) else 1 for one in embedded),
            sum(one.outputs for one in self.fields if isinstance(one, ScaledField)),
        )

    def encode(self, table: Table) -> EncodedRows:
        """Return the rows of a table encoded; columns are matched by name, further ones are not looked at.

        Raises:
            DataError: A column is missing, or has another type than in training.
        """
        return self.encode_columns({name: table.cells(name) for name in self.names}, table.rows)

    def encode_columns(self, columns: Mapping[str, Column], rows: int) -> EncodedRows:
        """Return rows encoded that came as columns by name, each of this many rows.

        Raises:
            DataError: A column is missing, or has another type than in training.
        """
        layout = self.layout
        indices = np.empty((rows, sum(layout.widths)), dtype=np.int32)
        numbers = np.empty((rows, layout.numbers), dtype=np.float32)
        column_at, number_at, offset = 0, 0, 0
        for one in self.fields:
            if one.name not in columns:
                raise DataError(f"the model needs the column {one.name!r}")
            if isinstance(one, ScaledField):
                numbers[:, number_at : number_at + one.outputs] = one.apply(columns[one.name])
                number_at += one.outputs
                continue
            local = one.apply(columns[one.name])
            width = local.shape[1]
            indices[:, column_at : column_at + width] = np.where(local < 0, layout.padding, local + offset)
            column_at, offset = column_at + width, offset + one.buckets
        return EncodedRows(indices, numbers)

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values; may be seen by the owner of the columns alone."""
        return {"kind": _KIND, "version": _VERSION, "fields": [one.to_json() for one in self.fields]}

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> FieldPlan:
        """Return what `to_json` wrote.

        Raises:
            DataError: The document is something else.
        """
        try:
            listed = document["fields"]
            if document["kind"] != _KIND or document["version"] != _VERSION or not isinstance(listed, list):
                raise ValueError("not our kind or version")
            return cls(tuple(fitted_field(one) for one in listed))
        except (KeyError, TypeError, ValueError, ConfigError) as failure:
            raise DataError("this is no description of fields, or of another version") from failure


class FieldLearner:
    """Learns a plan from columns that may come batch by batch.

    Of a number it keeps the values, of a category no more texts than make a difference.
    """

    def __init__(self, settings: FieldSettings) -> None:
        """Know no column yet."""
        self._settings = settings
        self._categories: dict[str, _Categories] = {}
        self._numbers: dict[str, list[Floats]] = {}
        self._names: dict[str, None] = {}

    def add(self, name: str, column: Column) -> None:
        """Take further training rows of a column."""
        self._names[name] = None
        if isinstance(column, CategoricalColumn):
            self._categories.setdefault(name, _Categories(name, self._settings)).add(column)
        else:
            self._numbers.setdefault(name, []).append(column.values)

    def plan(self, source: str) -> FieldPlan:
        """Return the plan; `source` is named in messages.

        Raises:
            ConfigError: The settings name a column that does not exist or has another type.
        """
        self._check_names(source)
        fitted = [
            self._categories[name].field()
            if name in self._categories
            else _fit_numbers(name, np.concatenate(self._numbers[name]), self._settings)
            for name in self._names
        ]
        embedded = [one for one in fitted if not isinstance(one, ScaledField)]
        return FieldPlan((*embedded, *(one for one in fitted if isinstance(one, ScaledField))))

    def _check_names(self, source: str) -> None:
        for name in self._settings.numeric:
            if name != DEFAULT and name not in self._numbers:
                raise ConfigError(f"there is no numeric column {name!r}", where=source)
        for name in self._settings.separators:
            if name not in self._categories:
                raise ConfigError(
                    f"only a categorical column can hold several values, {name!r} is none", where=source
                )


class _Categories:
    """How many categories a column has, up to the number from which its table grows no further."""

    def __init__(self, name: str, settings: FieldSettings) -> None:
        separator = settings.separators.get(name, "")
        self._whole = HashedField(name, 2, separator, settings.most_values if separator else 1)
        self._most_buckets = settings.hash_buckets
        self._known: set[str] = set()
        self._values = 1

    def add(self, column: CategoricalColumn) -> None:
        """Take further rows."""
        if self._enough and not self._whole.separator:
            return
        # Rows that were taken away may have left categories without a row.
        for code in np.unique(column.codes[column.codes >= 0]).tolist():
            parts = self._whole.parts(column.categories[code])
            self._values = max(self._values, len(parts))
            if not self._enough:
                self._known.update(parts)

    def field(self) -> HashedField:
        """Return the field."""
        wanted = max(_FEWEST_BUCKETS, 1 << (_BUCKETS_PER_CATEGORY * len(self._known)).bit_length())
        return replace(self._whole, buckets=min(self._most_buckets, wanted), values=self._values)

    @property
    def _enough(self) -> bool:
        return _BUCKETS_PER_CATEGORY * len(self._known) >= self._most_buckets


def _fit_numbers(name: str, values: Floats, settings: FieldSettings) -> BinnedField | ScaledField:
    rule = settings.numeric.get(name, settings.numeric.get(DEFAULT, "quantile"))
    present = values[np.isfinite(values)]
    if rule == "standardize":
        shift = float(present.mean()) if len(present) else 0.0
        deviation = float(present.std()) if len(present) else 0.0
        # A column without variation, up to rounding, must not be blown up to the size of the others.
        varies = deviation > 1e-12 * max(1.0, abs(shift)) and np.isfinite(deviation)
        return ScaledField(name, shift, deviation if varies else 1.0, bool(np.isnan(values).any()))
    edges = _log_edges(present, settings.bins) if rule == "log" else _quantile_edges(present, settings.bins)
    return BinnedField(name, tuple(edges.tolist()))


def _quantile_edges(values: Floats, bins: int) -> Floats:
    distinct = np.unique(values)
    if len(distinct) <= bins:
        # Few values: each one is a bin.
        return np.unique(distinct[:-1] + (distinct[1:] - distinct[:-1]) / 2)
    inner: Floats = np.unique(np.quantile(values, np.arange(1, bins) / bins, method="lower"))
    return inner


def _log_edges(values: Floats, bins: int) -> Floats:
    if not len(values):
        return np.empty(0)
    logs = np.sign(values) * np.log1p(np.abs(values))
    inner = np.linspace(logs.min(), logs.max(), bins + 1)[1:-1]
    edges: Floats = np.unique(np.sign(inner) * np.expm1(np.abs(inner)))
    return edges
