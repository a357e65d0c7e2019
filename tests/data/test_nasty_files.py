"""Every nasty file ends as it should: read and prepared, or refused with what, where and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from common.data.matching import ModelColumns, extra_columns, request_for_model
from common.data.numbers import MARKERS
from common.data.preprocess import Preprocessing
from common.data.reading import Label, TableRequest, open_source, read_table
from common.data.source import CsvFile
from common.data.table import Table
from common.errors import DataError
from common.glm.ridge import fit_ridge
from common.runtime.linear_design import open_dataset
from tests.data.nasty_cases import CASES, CITY, FOLDER, Case

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="../shared/data/nasty is not beside the project")


def read(case: Case) -> Table:
    label = Label("y", case.dataset(FOLDER / case.file).missing_labels) if case.is_active else None
    return open_dataset("ours", case.dataset(FOLDER / case.file), label)


def secrets(path: Path) -> set[str]:
    """Return ids and cells of a text file that no message may show."""
    if path.suffix != ".csv":
        return set()
    cells = {cell for line in path.read_text().splitlines()[1:] for cell in line.replace(";", ",").split(",")}
    return {cell for cell in cells if len(cell) > 3 and cell.lower() not in MARKERS}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file}-{json.dumps(case.declared)[:60]}")
def test_a_nasty_file_ends_as_declared(case: Case) -> None:
    if case.rows is None:
        with pytest.raises(DataError) as caught:
            read(case)
        block = caught.value.block()
        assert case.file in block
    else:
        table = read(case)
        assert table.rows == case.rows
        assert table.intake.read == table.rows + sum(table.intake.dropped.values())
        partner = read(Case(case.partner))
        assert len({*table.ids} & {*partner.ids}) == case.common
        features = table.without("y") if case.is_active else table
        fitted = Preprocessing.fit(features, "standardize")
        prepared = fitted.apply(features)
        assert case.features is None or fitted.features == case.features
        assert np.isfinite(prepared.matrix).all()
        block = "\n".join([*table.intake.sentences(), *fitted.notes(), *prepared.notes])
    for text in case.says:
        assert text in block
    assert not [secret for secret in secrets(FOLDER / case.file) if secret in block]


def test_every_file_of_the_folder_has_a_case() -> None:
    expected = json.loads((FOLDER / "expected.json").read_text())
    covered = {case.file for case in CASES} | {"a_categorical_unseen.csv"}
    assert covered == set(expected)


@pytest.mark.parametrize("name", ["a_bom_crlf.csv", "a_plain.csv.gz", "a_semicolon.csv"])
def test_another_spelling_of_the_clean_file_is_the_clean_table(name: str) -> None:
    assert read(Case(name)).digest() == read(Case("clean_a.csv")).digest()


CLEAN = ["clean_a.csv", "a_bom_crlf.csv", "a_semicolon.csv", "a_plain.csv.gz", "a_int_ids.parquet"]


@pytest.mark.parametrize("name", CLEAN)
def test_clean_features_give_the_reference_model(name: str) -> None:
    case = Case(name, {"id": {"pad_zeros": 6}})
    active = read(Case("clean_b.csv"))
    passive = read(case)
    row_of = {one: row for row, one in enumerate(passive.ids)}
    passive = passive.take(np.array([row_of[one] for one in active.ids]))
    blocks = [
        Preprocessing.fit(side, "standardize").apply(side).matrix for side in (passive, active.without("y"))
    ]
    model = LogisticRegression(C=1 / (60 * 1e-2), tol=1e-10, max_iter=5000).fit(
        np.hstack(blocks), active.column("y")
    )
    assert np.round(model.coef_[0], 5).tolist() == pytest.approx(
        [0.984057, -1.85507, 0.579115, -0.38634, 2.318528, 0.318332, -0.907333], abs=2e-5
    )


def test_plus_and_minus_one_give_the_same_regression_up_to_the_scale_of_the_label() -> None:
    plain, signed = (read(Case(name)) for name in ("clean_b.csv", "b_label_pm1.csv"))
    assert signed.column("y").tolist() == (2 * plain.column("y") - 1).tolist()
    matrix = Preprocessing.fit(plain.without("y"), "standardize").apply(plain.without("y")).matrix
    weights = [fit_ridge(matrix, side.column("y"), 0.1, "free") for side in (plain, signed)]
    assert np.allclose(2 * weights[0][:-1], weights[1][:-1])


def test_a_category_never_seen_in_training_is_predicted_and_counted() -> None:
    training = read(Case("a_categorical.csv", CITY))
    document = json.loads(json.dumps(Preprocessing.fit(training, "standardize").to_json()))
    fitted = Preprocessing.from_json(document)
    source = open_source(CsvFile(FOLDER / "a_categorical_unseen.csv"))
    request = request_for_model(ModelColumns.of_preprocessing(fitted), source, TableRequest("new"))
    new = read_table(source, request)
    prepared = fitted.apply(new)
    assert extra_columns(ModelColumns.of_preprocessing(fitted), source, request) == []
    assert prepared.matrix.shape == (60, 9)
    assert prepared.notes == (
        "column city: 30 rows of 60 with a category that no training row had, "
        "counted as none of the known ones",
    )
