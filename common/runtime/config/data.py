"""A data set in the party file: where its rows come from, and what is declared about ids and columns."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from common.data.ids import IdRule
from common.data.preparation import (
    DEFAULT,
    MAX_CATEGORIES,
    MIN_FREQUENCY,
    ColumnType,
    MissingRule,
    Preparation,
    Scale,
)
from common.data.source import AUTO, CsvFile, Declared, LibsvmFile, ParquetFiles, SqlQuery
from common.data.sql_source import SQLITE, has_driver_name, sqlite_path
from common.nets.fields import FieldSettings, NumericRule
from common.runtime.config.errors import FilePath, Section, below_file, require
from common.runtime.config.yaml_source import Problem

# No id is padded further than this; a wider setting is a slip.
_MAX_WIDTH = 64
_TAB = "tab"
_KINDS = ("csv", "parquet", "sql", "libsvm")


def _known_encoding(name: str) -> str:
    if name == AUTO:
        return name
    try:
        return codecs.lookup(name).name
    except LookupError as exc:
        raise ValueError("should be auto, or an encoding such as utf-8, cp1252, latin-1, utf-16-le") from exc


def _one_character(delimiter: str) -> str:
    if len(delimiter) != 1 and delimiter not in (AUTO, _TAB):
        raise ValueError('should be auto, tab, or one character such as ";"')
    return delimiter


def _database(url: str, info: ValidationInfo) -> str:
    if not has_driver_name(url):
        raise ValueError("should begin with sqlite: or postgresql:")
    if url.startswith(SQLITE):
        return f"{SQLITE}///{below_file(sqlite_path(url), info)}"
    return url


class IdConfig(Section):
    """How a cell of the id column becomes an id; ids are text, always."""

    column: str = Field(default="id", min_length=1)
    strip: bool = True
    case: Literal["keep", "lower", "upper"] = "keep"
    unicode: Literal["NFC", "NFKC", "none"] = "NFC"
    pad_zeros: int | None = Field(default=None, ge=1, le=_MAX_WIDTH)
    null_words: tuple[str, ...] = ()
    missing: Literal["error", "drop"] = "error"
    duplicates: Literal["error", "first", "last"] = "error"


class SqlConfig(Section):
    """A query to a database; `${NAME}` keeps the password out of the file."""

    url: Annotated[str, AfterValidator(_database)] = Field(repr=False)
    query: str = Field(min_length=1)


class SourceConfig(Section):
    """Where the rows of a data set come from: exactly one of csv, parquet, sql, libsvm."""

    csv: FilePath | None = None
    parquet: FilePath | None = None
    sql: SqlConfig | None = None
    libsvm: FilePath | None = None
    ids: Literal["row_numbers"] | FilePath | None = None
    label: str = Field(default="label", min_length=1)
    first_number: Literal[0, 1] = 1
    delimiter: Annotated[str, AfterValidator(_one_character)] = AUTO
    encoding: Annotated[str, AfterValidator(_known_encoding)] = AUTO
    decimal: Literal[".", ","] = "."

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        given = [name for name in _KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            yield Problem((), f"needs one of csv, parquet, sql and libsvm, not {len(given)} of them")
        for name in ("delimiter", "encoding", "decimal"):
            if name in self.model_fields_set and self.csv is None:
                yield Problem((name,), "is for csv only")
        for name in ("ids", "label", "first_number"):
            if name in self.model_fields_set and self.libsvm is None:
                yield Problem((name,), "is for libsvm only")
        if self.libsvm is not None and self.ids is None:
            yield Problem(
                ("ids",),
                "is missing: LIBSVM text has no ids; name a CSV file with one id for each row, or write "
                "ids: row_numbers if row 1 is the same entity at every party",
            )

    def declared(self) -> Declared:
        """Return the source as the reading code takes it."""
        if self.sql is not None:
            return SqlQuery(self.sql.url, self.sql.query)
        if self.parquet is not None:
            return ParquetFiles(self.parquet)
        if self.libsvm is not None:
            beside = self.ids if isinstance(self.ids, Path) else None
            return LibsvmFile(self.libsvm, beside, self.label, self.first_number)
        return CsvFile(self.csv or Path(), self.delimiter, self.encoding)


class CategoriesConfig(Section):
    """When a category has a column of its own; the others share one called (other)."""

    min_frequency: int = Field(default=MIN_FREQUENCY, ge=1)
    max_categories: int = Field(default=MAX_CATEGORIES, ge=2)


Types: TypeAlias = ColumnType | dict[str, ColumnType]
Missing: TypeAlias = MissingRule | dict[str, MissingRule]
Numbers: TypeAlias = NumericRule | dict[str, NumericRule]


class DatasetConfig(Section):
    """One table that jobs may name."""

    source: SourceConfig
    id: IdConfig = IdConfig()
    features: Literal["all"] | tuple[str, ...] = "all"
    types: Types = "numeric"
    missing: Missing = "error"
    missing_values: tuple[str, ...] = ("",)
    missing_labels: Literal["error", "drop"] = "error"
    scale: Literal["job"] | Scale = "job"
    categories: CategoriesConfig = CategoriesConfig()
    numbers: Literal["job"] | Numbers = "job"
    separators: dict[str, Annotated[str, Field(min_length=1)]] = Field(default={})

    @model_validator(mode="after")
    def _features_once(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        if self.source.libsvm is not None:
            for name in ("types", "missing", "missing_values", "categories"):
                if name in self.model_fields_set:
                    yield Problem(
                        (name,), "is not for libsvm: its columns are numbers, and 0 where a row has none"
                    )
        if self.features == "all":
            return
        for name in sorted({name for name in self.features if self.features.count(name) > 1}):
            yield Problem(("features",), f'names the column "{name}" more than once')
        if self.id.column in self.features:
            yield Problem(("features",), f'"{self.id.column}" is the id column and cannot be a feature')

    def id_rule(self) -> IdRule:
        """Return how a cell of the id column becomes an id."""
        return IdRule(**self.id.model_dump())

    def preparation(self) -> Preparation:
        """Return what is declared about the columns."""
        return Preparation(
            types=self.types if isinstance(self.types, dict) else {DEFAULT: self.types},
            missing=self.missing if isinstance(self.missing, dict) else {DEFAULT: self.missing},
            missing_values=self.missing_values,
            decimal=self.source.decimal,
            scale=None if self.scale == "job" else self.scale,
            min_frequency=self.categories.min_frequency,
            max_categories=self.categories.max_categories,
        )

    def field_settings(self, numbers: NumericRule, bins: int, hash_buckets: int) -> FieldSettings:
        """Return how networks take the columns; the arguments are the job's words where we say nothing."""
        own = self.numbers if isinstance(self.numbers, dict) else {}
        rest = numbers if self.numbers == "job" or isinstance(self.numbers, dict) else self.numbers
        return FieldSettings(
            numeric={DEFAULT: rest, **own}, bins=bins, hash_buckets=hash_buckets, separators=self.separators
        )
