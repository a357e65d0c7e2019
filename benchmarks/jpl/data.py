"""Real sets as encoded rows of two parties, split anew for every seed.

A set is what `vfl_sets.py` beside the data describes: a frame, the columns of A and B, which are categorical,
and a label of 0 and 1. Reading it needs pandas, which Colonnade itself does not.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.data.columns import CategoricalColumn, Column, NumericColumn
from common.data.table import Table
from common.errors import ConfigError
from common.nets.encoded import EncodedRows
from common.nets.fields import FieldPlan, FieldSettings
from common.nets.shape import FieldLayout
from common.types import Floats, Ints

_TEST, _VALIDATION = 0.2, 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A set before it is split.

    Attributes:
        name: Its name, with `:swap` when A and B change columns.
        table_a: A's columns of all n rows.
        table_b: B's columns of the same rows.
        labels: (n,).
    """

    name: str
    table_a: Table
    table_b: Table
    labels: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A set split by a seed: 64 % training, 16 % validation, 20 % test rows; all of them are B's.

    Attributes:
        rows_a: A's n encoded rows, of which those outside of `shared` are never looked at.
        rows_b: B's n encoded rows.
        shared: Positions of training and validation rows that A has too, ascending.
    """

    name: str
    rows_a: EncodedRows
    rows_b: EncodedRows
    layout_a: FieldLayout
    layout_b: FieldLayout
    labels: Floats
    training: Ints
    validation: Ints
    test: Ints
    shared: Ints


def load(folder: Path, name: str) -> Source:
    """Read a set from the folder with `vfl_sets.py`.

    Raises:
        ConfigError: There is no such folder, or no pandas.
    """
    if not (folder / "vfl_sets.py").is_file():
        raise ConfigError(f"{folder} has no vfl_sets.py", advice="give the folder of the data with --data")
    sys.path.append(str(folder))
    try:
        sets: Any = importlib.import_module("vfl_sets")
    except ImportError as missing:
        raise ConfigError("these sets are read with pandas", advice="pip install pandas") from missing
    base, _, variant = name.partition(":")
    found = sets.load(base)
    first, second = (found.B, found.A) if variant == "swap" else (found.A, found.B)
    labels = found.df["y"].to_numpy(dtype=np.float64)
    return Source(name, _table(found, first), _table(found, second), labels)


def split(source: Source, seed: int, overlap: float, most_rows: int | None, fields: FieldSettings) -> Case:
    """Split a set: other rows for training, validation, test and overlap with every seed."""
    draws = np.random.default_rng([seed, 99])
    everybody = np.arange(len(source.labels))
    if most_rows is not None and most_rows < len(everybody):
        everybody = draws.choice(everybody, most_rows, replace=False)
    n = len(everybody)
    test = draws.random(n) < _TEST
    validation = ~test & (draws.random(n) < _VALIDATION)
    training = ~test & ~validation
    # The same seed's smaller overlap lies within its larger one.
    known = draws.random(n) < overlap
    a, b = source.table_a.take(everybody), source.table_b.take(everybody)
    plan_a = FieldPlan.fit(a.take(np.flatnonzero(training & known)), fields)
    plan_b = FieldPlan.fit(b.take(np.flatnonzero(training)), fields)
    return Case(
        source.name,
        plan_a.encode(a),
        plan_b.encode(b),
        plan_a.layout,
        plan_b.layout,
        source.labels[everybody],
        np.flatnonzero(training),
        np.flatnonzero(validation),
        np.flatnonzero(test),
        np.flatnonzero(~test & known),
    )


def _table(found: Any, names: list[str]) -> Table:
    columns = [_column(found.df[name], categorical=name in found.cat) for name in names]
    return Table(found.name, found.name, tuple(found.df["id"]), tuple(names), tuple(columns))


def _column(series: Any, *, categorical: bool) -> Column:
    if not categorical:
        return NumericColumn(series.to_numpy(dtype=np.float64))
    texts = [None if absent else str(one) for one, absent in zip(series, series.isna(), strict=True)]
    names = sorted({one for one in texts if one is not None})
    places = {text: at for at, text in enumerate(names)}
    codes = np.array([-1 if one is None else places[one] for one in texts], dtype=np.int32)
    return CategoricalColumn(tuple(names), codes)
