"""Arrow values of any type become text; ids and categories are text, whatever a file calls them."""

from __future__ import annotations

import uuid
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from common.errors import DataError

Cells: TypeAlias = pa.Array


def plain(cells: Cells) -> Cells:
    """Return the values without dictionary encoding and without extension types, UUIDs as text."""
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    name = getattr(cells.type, "extension_name", "")
    if name == "arrow.uuid":
        return pa.array(
            [None if one is None else str(uuid.UUID(bytes=one)) for one in cells.storage.to_pylist()],
            pa.string(),
        )
    return cells.storage if name else cells


def is_text(kind: pa.DataType) -> bool:
    """Tell whether values of this type are text already."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_empty(kind: pa.DataType) -> bool:
    """Tell whether a column of this type has no value at all."""
    return bool(pa.types.is_null(kind))


def id_texts(cells: Cells, where: str) -> list[str]:
    """Return ids as text, "" where there is none; integers become their decimal text.

    Raises:
        DataError: The column has a type in which ids are not kept whole.
    """
    cells = plain(cells)
    kind = cells.type
    if pa.types.is_floating(kind):
        raise DataError(
            f"the id column is of type {kind}: ids that went through floating point may have lost digits",
            where=where,
            advice="export the ids as text, or as integers",
        )
    if pa.types.is_decimal(kind) and kind.scale > 0:
        raise DataError(
            f"the id column is of type {kind}: an id has no decimals",
            where=where,
            advice="export the ids as text, or as integers",
        )
    whole = is_text(kind) or is_empty(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    if not (whole or _is_binary(kind)):
        raise DataError(
            f"the id column is of type {kind}, which is no id", where=where, advice="export the ids as text"
        )
    return ["" if one is None else one for one in _strings(cells, where).to_pylist()]


def category_texts(cells: Cells, where: str) -> pa.StringArray:
    """Return categories as text, null where there is none.

    Raises:
        DataError: The column holds lists or other nested values.
    """
    cells = plain(cells)
    if pa.types.is_nested(cells.type):
        raise DataError(
            f"a column of type {cells.type} cannot serve as a category", where=where, advice="leave it out"
        )
    return _strings(cells, where)


def _strings(cells: Cells, where: str) -> pa.StringArray:
    if is_text(cells.type):
        return cells.cast(pa.string())
    if pa.types.is_floating(cells.type):
        # Arrow would write 1e+20 and 1 for what everybody else writes 1e20 and 1.0.
        return pa.array(
            [None if one is None or one != one else repr(one) for one in cells.to_pylist()], pa.string()
        )
    try:
        return pc.cast(cells, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"a column of type {cells.type} is no text in UTF-8", where=where, advice="export it as text"
        ) from None


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
