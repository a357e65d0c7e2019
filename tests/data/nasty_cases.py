"""Nasty input files: what is declared about each, and how reading it and preparing it has to end.

Whole services can be run on the same cases: `Case.dataset(path)` is the dataset of a party file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.runtime.config.data import DatasetConfig

# Beside the project, where the inputs are kept that have been seen in practice.
FOLDER = Path(__file__).parents[3] / "shared" / "data" / "nasty"


@dataclass(frozen=True, slots=True)
class Case:
    """One file under one declaration.

    Attributes:
        file: Its name.
        declared: The dataset's keys in the party file; the path is added.
        rows: Rows that stay; None when reading has to fail.
        features: Columns of the matrix; None when that is not the point.
        says: What the error, or a note of the run, has to mention.
        common: Ids that the partner file has too; None when reading has to fail.
    """

    file: str
    declared: dict[str, Any] = field(default_factory=dict)
    rows: int | None = 60
    features: tuple[str, ...] | None = ("a1", "a2", "a3", "a4")
    says: tuple[str, ...] = ()
    common: int | None = 60

    @property
    def is_active(self) -> bool:
        """Whether the file is the active party's, with a label."""
        return self.file.startswith("b_") or self.file == "clean_b.csv"

    @property
    def partner(self) -> str:
        """The file of the other side."""
        return "clean_a.csv" if self.is_active else "clean_b.csv"

    def dataset(self, path: Path) -> DatasetConfig:
        """Return the dataset as a party file declares it."""
        source = {"parquet" if path.suffix == ".parquet" else "csv": str(path)}
        declared = {**self.declared, "source": source | self.declared.get("source", {})}
        return DatasetConfig.model_validate_json(json.dumps(declared))


B = ("b1", "b2", "b3")
NUMBERS_AND = ("a1", "a2", "a3", "a4")
CITY = {"types": {"city": "categorical"}, "missing": {"city": "category"}, "categories": {"min_frequency": 1}}
MARKERS = ["", "NA", "N/A", "NaN", "null", "?", "-", "#N/A"]
DROPPED = ("66 rows read, 60 kept", "6 with a duplicate id")
REFUSED: dict[str, Any] = {"rows": None, "features": None, "common": None}

CASES = [
    Case("clean_a.csv"),
    Case("clean_b.csv", features=B),
    Case("a_bom_crlf.csv"),
    Case("a_quoted_commas.csv", **REFUSED, says=("'name'", "text, not a number", "(60 in all)")),
    Case("a_quoted_commas.csv", {"features": ["a1", "a2", "a3", "a4"]}),
    Case("a_quoted_commas.csv", {"types": {"name": "categorical"}}, features=None),
    Case("a_empty.csv", **REFUSED, says=("empty",)),
    Case("a_header_only.csv", **REFUSED, says=("no rows",)),
    Case("a_semicolon.csv", says=("delimiter", "';'")),
    Case("a_semicolon.csv", {"source": {"delimiter": ";"}}),
    Case("a_categorical.csv", **REFUSED, says=("'city'", "types: {city: categorical}")),
    Case(
        "a_categorical.csv",
        CITY,
        features=(*NUMBERS_AND, "city=(missing)", "city=Bern", "city=Genève", "city=NA", "city=Zürich"),
        says=("city", "12 missing values of 60 were made a category of their own"),
    ),
    Case(
        "a_categorical.csv",
        CITY | {"missing": {"city": "drop"}},
        rows=48,
        features=None,
        says=("60 rows read, 48 kept; left out: 12 without city",),
        common=48,
    ),
    Case("a_missing.csv", **REFUSED, says=("'a2'", "'?'", "'-'", "8 cells", "missing_values")),
    Case("a_missing.csv", {"missing_values": MARKERS}, **REFUSED, says=("'a2'", "8 cells", "empty")),
    Case(
        "a_missing.csv",
        {"missing_values": MARKERS, "missing": {"a2": "median"}},
        says=("column a2: 8 missing values of 60 were filled by the rule median",),
    ),
    Case(
        "a_missing.csv",
        {"missing_values": MARKERS, "missing": "drop"},
        rows=52,
        says=("60 rows read, 52 kept; left out: 8 without a2",),
        common=52,
    ),
    Case("a_constant.csv", features=("a2", "a3"), says=("a1 is constant", "a4 is constant")),
    Case("a_dup_same.csv", **REFUSED, says=("duplicate", "6 rows", "row 61 (line 62) repeats row 1")),
    Case(
        "a_dup_same.csv",
        {"id": {"duplicates": "first"}},
        says=DROPPED,
    ),
    Case(
        "a_dup_same.csv",
        {"id": {"duplicates": "last"}},
        says=DROPPED,
    ),
    Case("a_ids_zeros_lost.csv", common=30),
    Case("a_ids_zeros_lost.csv", {"id": {"pad_zeros": 6}}),
    Case("a_ids_float.csv", common=0),
    Case("a_no_overlap.csv", common=0),
    Case("a_half_overlap.csv", common=30),
    Case("b_label_pm1.csv", features=B),
    Case("b_label_missing.csv", **REFUSED, says=("'y'", "2 cells", "missing_labels: drop")),
    Case(
        "b_label_missing.csv",
        {"missing_labels": "drop"},
        rows=58,
        features=B,
        says=("60 rows read, 58 kept; left out: 2 without a label",),
        common=58,
    ),
    Case("a_plain.csv.gz"),
    Case("a_int_ids.parquet", common=30),
    Case("a_int_ids.parquet", {"id": {"pad_zeros": 6}}),
]
