"""New rows for a saved model: columns are matched by name, and everything that does not fit is listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from common.data.fitted_columns import FittedCategories
from common.data.numbers import TEXT, NumberReader
from common.data.preparation import DEFAULT, ColumnType, MissingRule, Preparation
from common.data.preprocess import Preprocessing
from common.data.reading import TableRequest
from common.data.source import Source
from common.data.wording import SHOWN_CASES, counted, quoted
from common.errors import DataError


@dataclass(frozen=True, slots=True)
class ModelColumns:
    """The columns that a model was trained on.

    Attributes:
        kinds: Type by column.
        missing: What happens to a missing value, by column.
        constant: Columns that were the same in every training row, and are not needed.
    """

    kinds: Mapping[str, ColumnType]
    missing: Mapping[str, MissingRule]
    constant: tuple[str, ...] = ()

    @classmethod
    def of_preprocessing(cls, fitted: Preprocessing) -> ModelColumns:
        """Return the columns of a linear model."""
        kinds: dict[str, ColumnType] = {
            one.name: "categorical" if isinstance(one, FittedCategories) else "numeric"
            for one in fitted.columns
        }
        return cls(kinds, {one.name: one.missing for one in fitted.columns}, tuple(fitted.constant))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that new rows must have."""
        return tuple(self.kinds)


def request_for_model(fitted: ModelColumns, source: Source, request: TableRequest) -> TableRequest:
    """Return the request for rows that a model is to score, with the types and rules of its training.

    Raises:
        DataError: Columns that the model needs are missing, or hold text where training had numbers; the
            further ones are listed with them.
    """
    missing = [name for name in fitted.names if name not in source.columns]
    numeric = [name for name in fitted.names if name in source.columns and fitted.kinds[name] == "numeric"]
    retyped = _text_columns(source, numeric, request.preparation)
    if missing or retyped:
        found = {
            "missing": missing,
            "text where training had numbers": retyped,
            "not known to the model": _extra(fitted, source, request),
        }
        raise DataError(
            f"{source.label} does not have the columns of the model's training",
            where="; ".join(
                f"{kind}: {quoted(names, SHOWN_CASES)}" for kind, names in found.items() if names
            ),
            advice="columns are matched by name; rename or add them",
        )
    kinds: dict[str, ColumnType] = {DEFAULT: "numeric", **fitted.kinds}
    preparation = replace(request.preparation, types=kinds, missing=dict(fitted.missing))
    return replace(request, features=fitted.names, preparation=preparation, label=None)


def extra_columns(fitted: ModelColumns, source: Source, request: TableRequest) -> list[str]:
    """Return a note on columns that the model does not know and that are therefore not read."""
    extra = _extra(fitted, source, request)
    if not extra:
        return []
    count = counted(len(extra), "column")
    return [f"{count} not known to the model and not read: {quoted(extra, SHOWN_CASES)}"]


def _extra(fitted: ModelColumns, source: Source, request: TableRequest) -> list[str]:
    known = {*fitted.names, *fitted.constant, request.id_rule.column}
    if request.label is not None:
        known.add(request.label.name)
    return [name for name in source.columns if name not in known]


def _text_columns(source: Source, names: list[str], preparation: Preparation) -> list[str]:
    """Return the columns of which no cell in the first rows is a number."""
    first: pa.RecordBatch | None = next(iter(source.batches(names)), None) if names else None
    if first is None:
        return []
    found = []
    for at, name in enumerate(names):
        reader = NumberReader(preparation.missing_values, preparation.decimal)
        reader.read(first.column(at))
        texts = reader.faults.counts.get(TEXT, 0)
        if texts and texts == first.num_rows - int(first.column(at).null_count):
            found.append(name)
    return found
