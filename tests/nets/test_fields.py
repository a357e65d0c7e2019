"""Columns become the same fields in every process, and every cell has a place in them."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from common.data.columns import CategoricalColumn
from common.errors import ConfigError, DataError
from common.nets.field_kinds import bucket
from common.nets.fields import FieldPlan, FieldSettings
from tests.nets.nets_cases import categories, numbers, table

NAN = math.nan


def test_a_bucket_is_a_known_answer() -> None:
    # hashlib.blake2b(b"city\0Basel", digest_size=8) and so on, worked out apart from the code.
    assert [bucket("city", "Basel", 1024), bucket("city", "Zürich", 1024)] == [755, 762]
    assert bucket("town", "Basel", 1024) != bucket("city", "Basel", 1024)
    assert {bucket("city", str(at), 3) for at in range(50)} == {1, 2}


def test_another_process_with_another_hash_seed_encodes_alike() -> None:
    plan = FieldPlan.fit(table({"city": categories(["Basel", "Bern", "Chur"])}), FieldSettings())
    code = (
        "import json,sys; from common.nets.fields import FieldPlan; from tests.nets.nets_cases import *;"
        "plan=FieldPlan.from_json(json.loads(sys.argv[1]));"
        "print(plan.encode(table({'city': categories(['Chur','Basel',None,'Genf'])})).indices[:,0].tolist())"
    )
    ours = plan.encode(table({"city": categories(["Chur", "Basel", None, "Genf"])})).indices[:, 0].tolist()
    for hash_seed in ("1", "2"):
        other = subprocess.run(
            [sys.executable, "-c", code, json.dumps(plan.to_json())],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
        )
        assert json.loads(other.stdout) == ours


def test_missing_is_a_category_of_its_own() -> None:
    columns = {"city": categories(["Basel", None, "Bern"]), "age": numbers([1.0, NAN, 3.0])}
    rows = FieldPlan.fit(table(columns), FieldSettings()).encode(table(columns))
    starts = [0, FieldPlan.fit(table(columns), FieldSettings()).layout.sizes[0]]
    assert rows.indices[1].tolist() == starts
    assert len(set(rows.indices[:, 0].tolist())) == 3
    assert len(set(rows.indices[:, 1].tolist())) == 3


def test_every_index_lies_in_its_fields_part_of_the_table() -> None:
    g = np.random.default_rng(1)
    columns = {
        "c": categories([f"x{one}" for one in g.integers(0, 300, 500)]),
        "q": numbers(g.lognormal(size=500)),
        "l": numbers(g.lognormal(3, 4, size=500)),
        "s": numbers(g.normal(5, 2, 500)),
    }
    settings = FieldSettings(numeric={"l": "log", "s": "standardize"}, hash_buckets=128)
    plan = FieldPlan.fit(table(columns), settings)
    later = {
        "c": categories([None, "never seen"]),
        "q": numbers([-1e300, 1e300]),
        "l": numbers([NAN, -5.0]),
        "s": numbers([NAN, 1e300]),
    }
    for rows in (plan.encode(table(columns)), plan.encode(table(later))):
        begin = 0
        for at, size in enumerate(plan.layout.sizes):
            assert (rows.indices[:, at] >= begin).all()
            assert (rows.indices[:, at] < begin + size).all()
            begin += size
        assert np.isfinite(rows.numbers).all()
    assert plan.layout.sizes[0] == 128


def test_quantile_bins_hold_equal_shares_and_few_values_are_bins_themselves() -> None:
    g = np.random.default_rng(2)
    columns = {"x": numbers(g.lognormal(size=10_000)), "k": numbers(g.integers(0, 5, 10_000).astype(float))}
    plan = FieldPlan.fit(table(columns), FieldSettings(bins=20))
    rows = plan.encode(table(columns))
    counts = np.bincount(rows.indices[:, 0])[1:]
    assert len(counts) == 20
    assert counts.min() > 480
    assert counts.max() < 520
    assert plan.layout.sizes[1] == 6


def test_log_bins_are_evenly_wide_in_the_logarithm() -> None:
    columns = {"x": numbers(np.expm1(np.linspace(0, 10, 1001)).tolist())}
    plan = FieldPlan.fit(table(columns), FieldSettings(numeric={"default": "log"}, bins=10))
    edges = np.log1p(plan.fields[0].edges)  # type: ignore[union-attr]
    np.testing.assert_allclose(edges, np.arange(1, 10), rtol=1e-9)


def test_a_standardised_number_flags_missing_cells_only_when_training_had_them() -> None:
    settings = FieldSettings(numeric={"default": "standardize"})
    whole = FieldPlan.fit(table({"x": numbers([1.0, 2.0, 3.0])}), settings)
    holes = FieldPlan.fit(table({"x": numbers([1.0, NAN, 3.0])}), settings)
    later = table({"x": numbers([2.0, NAN])})
    assert whole.encode(later).numbers.tolist() == [[0.0], [0.0]]
    assert holes.encode(later).numbers.tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_a_constant_number_does_not_blow_up() -> None:
    plan = FieldPlan.fit(table({"x": numbers([0.1 + 0.2] * 5)}), FieldSettings(numeric={"x": "standardize"}))
    assert np.abs(plan.encode(table({"x": numbers([0.3, 0.4])})).numbers).max() < 1


def test_a_cell_with_several_values_has_an_index_for_each_and_padding_behind() -> None:
    columns = {"tags": categories(["a|b", "b", None, "a| b |a|c", "|"])}
    plan = FieldPlan.fit(table(columns), FieldSettings(separators={"tags": "|"}))
    rows = plan.encode(table(columns)).indices
    size, padding = plan.layout.sizes[0], plan.layout.padding
    a, b, c = (bucket("tags", text, size) for text in "abc")
    assert rows.tolist() == [
        [a, b, padding], [b, padding, padding], [0, padding, padding], [a, b, c], [0, padding, padding]
    ]  # fmt: skip


def test_a_plan_survives_json_exactly() -> None:
    g = np.random.default_rng(3)
    columns = {
        "t": categories(["a|b", "c"] * 50),
        "x": numbers(g.normal(size=100)),
        "y": numbers(g.normal(size=100)),
    }
    plan = FieldPlan.fit(table(columns), FieldSettings(numeric={"y": "standardize"}, separators={"t": "|"}))
    assert FieldPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"kind": "fields", "version": 2, "fields": []},
        {"kind": "fields", "version": 1, "fields": []},
        {"kind": "fields", "version": 1, "fields": [{"name": "x", "type": "binned", "edges": [2.0, 1.0]}]},
        {"kind": "fields", "version": 1, "fields": [{"name": "x", "type": "binned", "edges": [NAN]}]},
        {"kind": "fields", "version": 1, "fields": [{"name": "x", "type": "hashed", "buckets": 1 << 30}]},
        {"kind": "fields", "version": 1, "fields": ["x"]},
        {
            "kind": "fields",
            "version": 1,
            "fields": [{"name": "x", "type": "hashed", "buckets": 1 << 30, "separator": "", "values": 1}],
        },
    ],
)
def test_a_broken_plan_is_a_data_error(document: dict[str, object]) -> None:
    with pytest.raises(DataError):
        FieldPlan.from_json(document)


def test_a_column_that_changed_its_type_or_went_is_a_data_error() -> None:
    plan = FieldPlan.fit(table({"c": categories(["a"]), "x": numbers([1.0])}), FieldSettings())
    with pytest.raises(DataError, match="categorical in training"):
        plan.encode(table({"c": numbers([1.0]), "x": numbers([1.0])}))
    with pytest.raises(DataError, match="numeric in training"):
        plan.encode(table({"c": categories(["a"]), "x": categories(["a"])}))
    with pytest.raises(DataError, match="'x'"):
        plan.encode(table({"c": categories(["a"])}))


@pytest.mark.parametrize(
    "settings",
    [
        {"bins": 1},
        {"hash_buckets": 1},
        {"most_values": 0},
        {"numeric": {"x": "cubic"}},
        {"separators": {"c": ""}},
    ],
)
def test_settings_out_of_range_are_config_errors(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        FieldSettings(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings", [FieldSettings(numeric={"c": "log"}), FieldSettings(separators={"x": "|"})]
)
def test_settings_for_a_column_of_another_type_are_config_errors(settings: FieldSettings) -> None:
    with pytest.raises(ConfigError):
        FieldPlan.fit(table({"c": categories(["a"]), "x": numbers([1.0])}), settings)


class Unasked(str):
    """A category that nobody may look at."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        raise AssertionError


def test_a_row_costs_its_own_categories_and_not_the_vocabulary_of_its_table() -> None:
    column = CategoricalColumn(("a", Unasked("b"), "c"), np.array([2, 0, -1, 0], dtype=np.int32))
    plan = FieldPlan.fit(table({"x": categories(["a", "c"])}), FieldSettings())
    rows = plan.encode(table({"x": column})).indices[:, 0].tolist()
    size = plan.layout.sizes[0]
    assert rows == [bucket("x", "c", size), bucket("x", "a", size), 0, bucket("x", "a", size)]
