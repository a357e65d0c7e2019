"""LIBSVM data sets in jobs: written out where an algorithm needs every number, sparse where it does not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from common.data.preprocess import Preprocessing
from common.errors import DataError
from common.runtime.config.job import JobConfig
from common.runtime.config.party import PartyConfig
from common.runtime.linear_design import design_with_intercept, read_dataset
from common.runtime.new_rows import read_new_rows
from common.runtime.saved_model import SavedModel, load_model
from common.runtime.state import JobStore

OLD = "".join(f"{1 if at % 3 else -1} 2:{at}.5 5:{at * at} 9:1\n" for at in range(1, 61))
NEW = "1 2:1.5\n-1 5:4 77:1\nnan\n"
JOB = {
    "job": "wide",
    "algorithm": "he_linear",
    "active": "b",
    "passive": ["a"],
    "coordinator": "c",
    "data": {"dataset": "rows", "label": "y"},
}


class SparseJob(JobConfig):
    """A job that trains on sparse columns as they are."""

    @property
    def takes_sparse_columns(self) -> bool:
        return True


def party(tmp_path: Path, text: str, role: str = "active") -> PartyConfig:
    (tmp_path / "rows.libsvm").write_text(text)
    source = {"libsvm": str(tmp_path / "rows.libsvm"), "ids": "row_numbers", "label": "y"}
    return PartyConfig.model_validate(
        {
            "party": "b" if role == "active" else "a",
            "role": role,
            "listen": "127.0.0.1:0",
            "insecure": True,
            "peers": {},
            "state": str(tmp_path / "state"),
            "datasets": {"rows": {"source": source}},
        },
        strict=False,
    )


def saved(preprocessing: Preprocessing, coefficients: np.ndarray, loss="squared") -> SavedModel:
    return SavedModel(
        job_id="j1",
        job="wide",
        party="b",
        algorithm="he_linear",
        loss=loss,
        active="b",
        passive=("a",),
        rounds=1,
        preprocessing=preprocessing,
        coefficients=coefficients,
        intercept=0.25,
        label="y",
    )


def test_an_algorithm_that_needs_every_number_gets_them(tmp_path):
    job = JobConfig.model_validate(JOB, strict=False)
    table = read_dataset(party(tmp_path, OLD), job)
    design = design_with_intercept(table.without("y"), job)
    assert table.sparse is None
    assert table.features == ("y", "2", "5", "9")
    assert design.features == ("2", "5", "intercept")  # 9 is constant
    assert np.allclose(design.matrix[design.train].mean(axis=0), [0, 0, 1])


def test_a_passive_party_takes_no_label(tmp_path):
    table = read_dataset(party(tmp_path, OLD, "passive"), JobConfig.model_validate(JOB, strict=False))
    assert table.features == ("2", "5", "9")


def test_others_get_them_sparse(tmp_path):
    table = read_dataset(party(tmp_path, OLD), SparseJob.model_validate(JOB, strict=False))
    assert table.features == ("y",)
    assert table.sparse.names == ("2", "5", "9")
    assert table.width == 4


@pytest.mark.parametrize("kind", [JobConfig, SparseJob])
def test_new_rows_are_scored_by_the_columns_numbers(tmp_path, kind):
    job = kind.model_validate(JOB, strict=False)
    table = read_dataset(party(tmp_path, OLD), job).without("y")
    fitted = Preprocessing.fit(table, "none")
    # What a column of this name weighs; 9 is the same in all rows and stays where nothing is scaled.
    model = saved(fitted, np.array([{"2": 10.0, "5": 100.0, "9": 0.0}[name] for name in fitted.features]))
    rows = read_new_rows(party(tmp_path, NEW), job, model)
    own = model.partial_scores(rows.table)
    assert own.scores.tolist() == [15.25, 400.25, 0.25]
    assert rows.labels[:2].tolist() == [1, -1]
    assert np.isnan(rows.labels[2])
    assert "1 sparse column of 3 not in the model" in " ".join((*rows.notes, *own.notes))


def test_a_model_of_named_columns_does_not_score_numbered_ones(tmp_path):
    job = JobConfig.model_validate(JOB, strict=False)
    document = {"kind": "columns", "version": 1, "constant": []}
    age = {"name": "age", "type": "numeric", "missing": "error", "fill": None, "shift": 0.0, "scale": 1.0}
    model = saved(Preprocessing.from_json({**document, "columns": [age]}), np.ones(1))
    with pytest.raises(DataError, match="'age'"):
        read_new_rows(party(tmp_path, NEW), job, model)


def test_a_model_of_fifty_thousand_columns_is_kept_and_used_again(tmp_path):
    rng = np.random.default_rng(2)
    drawn = (np.unique(rng.integers(1, 70_000, 600)) for _ in range(300))
    lines = [f"{at % 2} " + " ".join(f"{number}:{at + 1}" for number in row) for at, row in enumerate(drawn)]
    job = SparseJob.model_validate(JOB, strict=False)
    table = read_dataset(party(tmp_path, "\n".join(lines)), job).without("y")
    fitted = Preprocessing.fit(table, "standardize")
    assert len(fitted.features) > 50_000
    model = saved(fitted, rng.normal(size=len(fitted.features)))
    content = json.dumps(model.to_json()).encode()
    assert len(content) < 100 * len(fitted.features)

    store = JobStore(tmp_path / "kept")
    store.write_bytes("j1", "model.json", content)
    again, _ = load_model(store, "j1", "b")
    assert np.array_equal(model.partial_scores(table).scores, again.partial_scores(table).scores)
