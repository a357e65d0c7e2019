"""Sets as encoded rows of two parties, split anew for every seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.jpl.sets import Source
from common.nets.encoded import EncodedRows
from common.nets.fields import FieldPlan, FieldSettings
from common.nets.shape import FieldLayout
from common.types import Floats, Ints

_TEST, _VALIDATION = 0.2, 0.2


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
