"""Rows that are read batch by batch give the same as rows that are read whole, and train from files."""

from __future__ import annotations

import pickle  # of our own workers, never of a peer
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from common.data.ids import IdRule
from common.data.parquet_source import open_parquet
from common.data.preparation import Preparation
from common.data.reading import Label, TableRequest, read_table
from common.data.scanned import FileRows, HeldRows, Rows, held, open_rows
from common.data.source import CsvFile, Declared, ParquetFiles
from common.errors import DataError
from common.nets.field_stream import encode, learn, sampled
from common.nets.fields import FieldPlan, FieldSettings
from common.nets.shape import NetSettings
from common.nets.split import PassiveNetwork

ROWS = 90_000  # Three batches of a Parquet source.
RULES = Preparation(
    types={"city": "categorical", "tags": "categorical"},
    missing={"default": "drop", "city": "category", "tags": "category"},
)
REQUEST = TableRequest("d", IdRule("id", duplicates="first"), preparation=RULES, label=Label("age"))
SETTINGS = FieldSettings(numeric={"amount": "standardize"}, separators={"tags": "|"})


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Declared:
    g = np.random.default_rng(1)
    amounts = np.where(g.random(ROWS) < 0.1, None, g.lognormal(size=ROWS))
    cities = np.where(g.random(ROWS) < 0.1, None, np.array(["a", "b", "c", "d"])[g.integers(0, 4, ROWS)])
    columns = {
        "id": pa.array([f"u{at % (ROWS - 5)}" for at in range(ROWS)]),  # Five come again.
        "city": pa.array(cities.tolist(), pa.string()),
        "tags": pa.array(np.array(["x", "x|y", "z"])[g.integers(0, 3, ROWS)].tolist()),
        "amount": pa.array(amounts.tolist(), pa.float64()),
        "weight": pa.array(g.normal(size=ROWS)),
        "age": pa.array(g.integers(18, 90, ROWS)),
    }
    path = tmp_path_factory.mktemp("stream") / "rows.parquet"
    pyarrow.parquet.write_table(pa.table(columns), path)
    return ParquetFiles(path)


@pytest.fixture(scope="module")
def rows(parquet: Declared) -> Rows:
    return open_rows(parquet, REQUEST)


@pytest.fixture(scope="module")
def whole(parquet: ParquetFiles) -> HeldRows:
    return held(read_table(open_parquet(parquet), REQUEST), ["age"])


def test_rows_in_a_file_are_those_of_a_whole_table(rows: Rows, whole: HeldRows, tmp_path: Path) -> None:
    assert isinstance(rows, FileRows)
    assert 0.85 * ROWS < rows.head.rows < 0.95 * ROWS  # Rows without an amount are dropped, and five ids.
    assert (rows.features, rows.head.ids) == (whole.features, whole.head.ids)
    assert rows.head.digest() == whole.head.digest()
    assert rows.head.intake == whole.head.intake
    plan = learn(rows, np.arange(rows.head.rows), SETTINGS)
    order = np.random.default_rng(2).permutation(rows.head.rows)[:50_000]
    streamed = encode(rows, plan, order, tmp_path)
    expected = plan.encode(whole.table)
    np.testing.assert_array_equal(streamed.indices, expected.indices[order])
    np.testing.assert_array_equal(streamed.numbers, expected.numbers[order])
    network = PassiveNetwork(streamed, plan.layout, NetSettings())
    in_memory = PassiveNetwork(expected, plan.layout, NetSettings())
    some = np.array([40_000, 3, 41_000])
    np.testing.assert_array_equal(network.forward(some), in_memory.forward(order[some]))


def test_a_plan_learnt_in_batches_is_that_of_the_whole_table(rows: Rows, whole: HeldRows) -> None:
    training = np.random.default_rng(3).permutation(rows.head.rows)[:60_000]
    assert learn(rows, training, SETTINGS) == FieldPlan.fit(
        whole.table.without("age").take(np.sort(training)), SETTINGS
    )


def test_a_worker_maps_the_files_and_is_sent_nothing_of_them(rows: Rows, tmp_path: Path) -> None:
    plan = learn(rows, np.arange(1000), SETTINGS)
    encoded = encode(rows, plan, np.arange(rows.head.rows), tmp_path)
    sent = pickle.dumps(encoded)
    assert len(sent) < 1000
    assert pickle.loads(sent).digest() == encoded.digest()  # noqa: S301 - made in the line above
    # A worker elsewhere gets the rows themselves.
    assert len(pickle.dumps(encoded.in_memory())) > encoded.indices.nbytes
    assert encoded.in_memory().digest() == encoded.digest()


def test_rows_that_are_encoded_again_leave_those_alone_that_are_in_use(rows: Rows, tmp_path: Path) -> None:
    plan = learn(rows, np.arange(1000), SETTINGS)
    first = encode(rows, plan, np.arange(1000), tmp_path)
    before = first.in_memory()
    encode(rows, plan, np.arange(2000, 2010), tmp_path)
    assert first.digest() == before.digest()


def test_a_sample_is_uniform_always_the_same_and_all_rows_when_they_are_few() -> None:
    many = np.arange(1_000_000)[::-1]
    sample = sampled(many, 10)
    assert 100_000 < len(sample) == len(np.unique(sample)) < 200_000
    assert sample.mean() == pytest.approx(500_000, rel=0.01)
    np.testing.assert_array_equal(sample, sampled(many, 10))
    # A table of many columns is learnt from fewer rows.
    assert len(sampled(many, 1000)) * 1000 < 10_000_000
    np.testing.assert_array_equal(sampled(np.array([7, 3, 5]), 10), [7, 3, 5])


def written(folder: Path, kind: str, x: Sequence[str]) -> Declared:
    """Write ids and one column of texts as a file."""
    table = pa.table({"id": [str(at) for at in range(len(x))], "x": list(x)})
    if kind == "parquet":
        pyarrow.parquet.write_table(table, folder / "rows.parquet")
        return ParquetFiles(folder / "rows.parquet")
    (folder / "rows.csv").write_text("\n".join(["id,x", *(f"{at},{one}" for at, one in enumerate(x))]) + "\n")
    return CsvFile(folder / "rows.csv")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("cell", ["many", ""])
def test_cells_that_do_not_fit_are_told_with_their_place_before_anything_is_trained(
    tmp_path: Path, kind: str, cell: str
) -> None:
    texts = ["1.5"] * 70_000
    texts[65_999] = cell
    with pytest.raises(DataError) as refusal:
        open_rows(written(tmp_path, kind, texts), TableRequest("d", IdRule("id")))
    assert "row 66000" in refusal.value.where
    assert "many" not in refusal.value.block()


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_file_that_changes_under_a_job_is_refused(tmp_path: Path, kind: str) -> None:
    request = TableRequest("d", IdRule("id", missing="drop"))
    rows = open_rows(written(tmp_path, kind, ["1.5"] * 100), request)
    written(tmp_path, kind, ["1.5"] * 99)
    with pytest.raises(DataError, match="other rows than a moment ago"):
        learn(rows, np.array([3]), FieldSettings())
    written(tmp_path, kind, ["1.5"] * 100)
    assert learn(rows, np.array([3]), FieldSettings()).names == ("x",)


def test_rules_are_checked_before_a_file_is_read(parquet: Declared) -> None:
    request = replace(REQUEST, preparation=replace(RULES, missing={"nowhere": "drop"}))
    with pytest.raises(DataError, match="nowhere"):
        open_rows(parquet, request)
