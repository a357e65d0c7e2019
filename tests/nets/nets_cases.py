"""Small data for networks: a party's columns as a table, and two parties whose columns explain a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from common.data.columns import CategoricalColumn, Column, NumericColumn
from common.data.table import Table
from common.nets.encoded import EncodedRows
from common.nets.fields import FieldPlan, FieldSettings
from common.nets.shape import FieldLayout
from common.types import Floats


def categories(texts: Sequence[str | None]) -> CategoricalColumn:
    """Return texts as a column, None where one is missing."""
    names = sorted({text for text in texts if text is not None})
    return CategoricalColumn(
        tuple(names), np.array([-1 if text is None else names.index(text) for text in texts], dtype=np.int32)
    )


def numbers(values: Sequence[float]) -> NumericColumn:
    """Return numbers as a column, NaN where one is missing."""
    return NumericColumn(np.array(values, dtype=np.float64))


def table(columns: Mapping[str, Column]) -> Table:
    """Return columns as a table with running ids."""
    rows = len(next(iter(columns.values())))
    return Table("d", "d.csv", tuple(map(str, range(rows))), tuple(columns), tuple(columns.values()))


@dataclass(frozen=True, slots=True, eq=False)
class TwoParties:
    """Encoded rows of A and B with B's labels."""

    a: EncodedRows
    b: EncodedRows
    layout_a: FieldLayout
    layout_b: FieldLayout
    labels: Floats


def two_parties(rows: int = 600, seed: int = 5) -> TwoParties:
    """Return rows on which A sees a hidden trait that B sees through noise."""
    g = np.random.default_rng(seed)
    traits = g.integers(0, 6, (rows, 2))
    effect = g.normal(0, 1.0, (2, 6))
    chance = 1 / (1 + np.exp(-effect[0, traits[:, 0]] - effect[1, traits[:, 1]]))
    labels = (g.random(rows) < chance).astype(np.float64)
    noisy = [np.where(g.random(rows) < 0.5, traits[:, at % 2], g.integers(0, 6, rows)) for at in range(4)]
    columns_a: dict[str, Column] = {
        f"a{at}": categories([f"v{one}" for one in traits[:, at]]) for at in range(2)
    }
    columns_a["amount"] = numbers(g.normal(size=rows))
    columns_b: dict[str, Column] = {
        f"b{at}": categories([f"w{one}" for one in column]) for at, column in enumerate(noisy)
    }
    columns_b["age"] = numbers(g.normal(40, 10, rows))
    settings = FieldSettings(numeric={"default": "standardize"})
    tables = [table(columns_a), table(columns_b)]
    plans = [FieldPlan.fit(one, settings) for one in tables]
    encoded = [plan.encode(one) for plan, one in zip(plans, tables, strict=True)]
    return TwoParties(encoded[0], encoded[1], plans[0].layout, plans[1].layout, labels)
