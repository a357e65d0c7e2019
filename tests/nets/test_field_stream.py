"""A source that is read batch by batch gives the same rows as one that is read whole, and trains from
files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from common.data.ids import IdRule
from common.data.parquet_source import open_parquet
from common.data.preparation import Preparation
from common.data.reading import TableRequest, read_table
from common.data.source import ParquetFiles, Source
from common.errors import ConfigError, DataError
from common.nets.field_stream import encode_source, open_encoded, sample_rows
from common.nets.fields import FieldPlan, FieldSettings
from common.nets.shape import NetSettings
from common.nets.split import PassiveNetwork

ROWS = 90_000  # Three batches of a Parquet source.
RULES = Preparation(
    types={"city": "categorical", "tags": "categorical"},
    missing={"default": "mean", "city": "category", "tags": "category"},
)
REQUEST = TableRequest("d", IdRule("id"), preparation=RULES)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    g = np.random.default_rng(1)
    amounts = np.where(g.random(ROWS) < 0.1, None, g.lognormal(size=ROWS))
    cities = np.where(g.random(ROWS) < 0.1, None, np.array(["a", "b", "c", "d"])[g.integers(0, 4, ROWS)])
    columns = {
        "id": pa.array([f"u{at}" for at in range(ROWS)]),
        "city": pa.array(cities.tolist(), pa.string()),
        "tags": pa.array(np.array(["x", "x|y", "z"])[g.integers(0, 3, ROWS)].tolist()),
        "amount": pa.array(amounts.tolist(), pa.float64()),
        "age": pa.array(g.integers(18, 90, ROWS)),
    }
    path = tmp_path_factory.mktemp("stream") / "rows.parquet"
    pyarrow.parquet.write_table(pa.table(columns), path)
    return open_parquet(ParquetFiles(path))


def test_streamed_rows_equal_rows_that_were_read_whole(source: Source, tmp_path: Path) -> None:
    settings = FieldSettings(numeric={"age": "standardize"}, separators={"tags": "|"})
    whole = read_table(source, REQUEST)
    plan = FieldPlan.fit(whole, settings)
    streamed, expected = encode_source(source, REQUEST, plan, tmp_path), plan.encode(whole)
    np.testing.assert_array_equal(streamed.indices, expected.indices)
    np.testing.assert_array_equal(streamed.numbers, expected.numbers)
    assert isinstance(streamed.indices, np.memmap)
    np.testing.assert_array_equal(open_encoded(plan, tmp_path, ROWS).indices, expected.indices)
    network = PassiveNetwork(streamed, plan.layout, NetSettings())
    in_memory = PassiveNetwork(expected, plan.layout, NetSettings())
    rows = np.array([80_000, 3, 41_000])
    np.testing.assert_array_equal(network.forward(rows), in_memory.forward(rows))


def test_a_sample_is_uniform_over_all_batches_and_repeats_with_its_seed(source: Source) -> None:
    sample, again = (sample_rows(source, REQUEST, 20_000, 3) for _ in range(2))
    assert sample.rows == 20_000
    assert sample.digest() == again.digest()
    assert sample_rows(source, REQUEST, 20_000, 4).digest() != sample.digest()
    whole = read_table(source, REQUEST)
    assert np.nanmean(sample.column("amount")) == pytest.approx(np.nanmean(whole.column("amount")), rel=0.05)
    # Bins that the sample teaches hold nearly equal shares of all rows.
    plan = FieldPlan.fit(sample.select(["amount"]), FieldSettings(bins=10))
    counts = np.bincount(plan.encode(whole).indices[:, 0])[1:]
    assert counts.max() / counts.min() < 1.15


def test_a_sample_of_more_rows_than_there_are_is_all_of_them_in_order(source: Source) -> None:
    sample = sample_rows(source, REQUEST, 10**6, 3)
    np.testing.assert_array_equal(sample.column("age"), read_table(source, REQUEST).column("age"))


def test_cells_that_do_not_fit_are_told_with_their_place(tmp_path: Path) -> None:
    texts = ["1.5"] * 70_000
    texts[65_999] = "many"
    table = pa.table({"id": [str(at) for at in range(70_000)], "x": texts})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    source = open_parquet(ParquetFiles(tmp_path / "rows.parquet"))
    request = TableRequest("d", IdRule("id"))
    plan = FieldPlan.fit(sample_rows(source, request, 1000, 0), FieldSettings())
    with pytest.raises(DataError) as refusal:
        encode_source(source, request, plan, tmp_path)
    assert "row 66000" in refusal.value.where
    assert "many" not in refusal.value.block()


def test_a_rule_that_drops_rows_is_refused(source: Source) -> None:
    request = TableRequest("d", IdRule("id"), preparation=Preparation(RULES.types, {"amount": "drop"}))
    with pytest.raises(ConfigError, match="amount"):
        sample_rows(source, request, 10, 0)
