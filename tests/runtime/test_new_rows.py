"""New rows for a network stay in their file; what is known of them is what reading them whole says."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from common.data.columns import CategoricalColumn
from common.data.matching import ModelColumns
from common.errors import DataError
from common.runtime.config.party import PartyConfig
from common.runtime.config.predict import PredictJob
from common.runtime.new_rows import open_new_rows, read_new_rows

JOB = PredictJob.model_validate(
    {"job": "p", "algorithm": "predict", "active": "b", "model": "m", "data": {"dataset": "new"}},
    strict=False,
)
HEADER = ("id", "age", "town", "y", "spare")
ROWS = [
    ("r1", "4.5", "Ulm", "yes", "0"),
    ("r2", "", "Bonn", "no", "0"),
    ("r3", "6", "", "", "0"),
    ("r4", "7", "Ulm", "yes", "0"),
]


@dataclass(frozen=True)
class Model:
    """A model of a number, of which rows without it are left out, and of a text."""

    columns: ModelColumns
    keeps_sparse: bool = False
    label: str | None = "y"
    positive: str | None = "yes"


MODEL = Model(ModelColumns({"age": "numeric", "town": "categorical"}, {"age": "drop", "town": "category"}))


def party(folder: Path, kind: str, rows: list[tuple[str, ...]]) -> PartyConfig:
    """Return a party whose new rows lie in a file, or in a database, which is read as a whole."""
    if kind == "csv":
        path = folder / "new.csv"
        path.write_text("".join(",".join(row) + "\n" for row in [HEADER, *rows]))
        source: dict[str, object] = {"csv": str(path)}
    else:
        database = sqlite3.connect(folder / "new.db")
        database.execute(f"create table t ({', '.join(HEADER)})")
        values = [tuple(cell or None for cell in row) for row in rows]
        database.executemany("insert into t values (?, ?, ?, ?, ?)", values)
        database.commit()
        database.close()
        source = {"sql": {"url": f"sqlite:{folder / 'new.db'}", "query": "select * from t order by id"}}
    return PartyConfig.model_validate(
        {
            "party": "b",
            "role": "active",
            "listen": "127.0.0.1:0",
            "insecure": True,
            "peers": {},
            "state": str(folder / "state"),
            "datasets": {"new": {"source": source}},
        },
        strict=False,
    )


@pytest.mark.parametrize("kind", ["csv", "sql"])
def test_ids_labels_notes_and_columns_are_those_of_the_whole_table(tmp_path: Path, kind: str) -> None:
    own = party(tmp_path, kind, ROWS)
    whole, opened = read_new_rows(own, JOB, MODEL), open_new_rows(own, JOB, MODEL)

    assert opened.head.table.ids == whole.table.ids == ("r1", "r3", "r4")
    assert opened.head.notes == whole.notes
    assert any("spare" in note for note in whole.notes)
    assert whole.labels is not None
    assert np.array_equal(whole.labels, np.array([1.0, np.nan, 1.0]), equal_nan=True)
    assert opened.head.labels is not None
    assert np.array_equal(opened.head.labels, whole.labels, equal_nan=True)
    (cells,) = opened.rows.batches(["age", "town"])
    age, town = cells.columns["age"], cells.columns["town"]
    assert not isinstance(age, CategoricalColumn)
    assert age.values.tolist() == [4.5, 6.0, 7.0]
    assert isinstance(town, CategoricalColumn)
    assert [town.categories[code] if code >= 0 else None for code in town.codes] == ["Ulm", None, "Ulm"]


@pytest.mark.parametrize("kind", ["csv", "sql"])
def test_a_cell_that_does_not_fit_is_found_before_anything_is_scored(tmp_path: Path, kind: str) -> None:
    own = party(tmp_path, kind, [*ROWS, ("r5", "old", "Ulm", "no", "0")])
    told = []
    for read in (read_new_rows, open_new_rows):
        with pytest.raises(DataError) as caught:
            read(own, JOB, MODEL)
        told.append(caught.value.block())
    assert told[0] == told[1]
    assert "'age'" in told[0]


def test_rows_of_a_file_without_a_label_column_have_no_labels(tmp_path: Path) -> None:
    own = party(tmp_path, "csv", ROWS)
    assert open_new_rows(own, JOB, Model(MODEL.columns, label="churn")).head.labels is None
