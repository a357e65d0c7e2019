"""Sparse columns stay sparse: from the file to the update, and in the saved model."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array
from sklearn.datasets import dump_svmlight_file
from sklearn.preprocessing import StandardScaler

from common.data.columns import NumericColumn
from common.data.ids import IdRule
from common.data.preparation import Preparation
from common.data.preprocess import Preprocessing
from common.data.reading import TableRequest, open_source, read_table
from common.data.source import LibsvmFile
from common.data.sparse_columns import SparseColumns
from common.data.table import Table
from common.errors import ConfigError, DataError, LocalProtocolError, NumericError
from common.glm.block import Block
from common.glm.feature_rows import DenseRows, SparseRows
from common.glm.score_losses import penalty_named
from common.glm.update_rules import rule_named


def table(matrix, *, scale=None, columns=None):
    sparse = SparseColumns.of(csr_array(matrix))
    ids = tuple(map(str, range(len(sparse))))
    dense = {} if columns is None else columns
    values = tuple(NumericColumn(np.asarray(column, dtype=float)) for column in dense.values())
    return Table("d", "rows", ids, tuple(dense), values, Preparation(scale=scale), sparse=sparse)


@pytest.fixture
def rows():
    matrix = random_array((60, 9), density=0.3, rng=np.random.default_rng(4), format="csr").toarray()
    matrix[:, 2] = 0.0  # in no row
    matrix[:, 5] = 3.0  # the same in every row
    matrix[40:, 7] = 0.0
    return matrix


def test_standardize_divides_by_the_deviation_without_centring_and_says_so(rows):
    fitted = Preprocessing.fit(table(rows), "standardize")
    kept = [0, 1, 3, 4, 6, 7, 8]
    assert fitted.features == tuple(map(str, kept))
    expected = StandardScaler(with_mean=False).fit_transform(rows[:, kept])
    assert np.allclose(fitted.apply_sparse(table(rows)).matrix.toarray(), expected, rtol=1e-14)
    notes = " ".join(fitted.notes())
    assert "not centred" in notes
    assert "left out: 1 column: 5" in notes


def test_max_abs_and_none(rows):
    by_largest = Preprocessing.fit(table(rows, scale="max_abs"), "standardize").apply_sparse(table(rows))
    assert np.allclose(abs(by_largest.matrix).max(axis=0).toarray(), 1.0)
    plain = Preprocessing.fit(table(rows), "none").apply_sparse(table(rows)).matrix.toarray()
    assert np.array_equal(plain, rows[:, [0, 1, 3, 4, 6, 7, 8]])


def test_minmax_is_refused_because_zeros_would_be_zeros_no_more(rows):
    with pytest.raises(ConfigError, match="zeros"):
        Preprocessing.fit(table(rows, scale="minmax"), "standardize")


def test_max_abs_also_scales_dense_columns():
    dense = Table("d", "rows", ("a", "b"), ("x",), (NumericColumn(np.array([1.0, -4.0])),))
    fitted = Preprocessing.fit(dense, "max_abs")
    assert fitted.apply(dense).matrix.ravel().tolist() == [0.25, -1.0]


def test_new_rows_are_matched_by_number_and_what_they_lack_is_zero(rows):
    fitted = Preprocessing.from_json(json.loads(json.dumps(Preprocessing.fit(table(rows), "none").to_json())))
    new = np.zeros((2, 12))
    new[0, [1, 11]] = 5.0
    prepared = fitted.apply_sparse(table(new))
    expected = np.zeros((2, 7))
    expected[0, 1] = 5.0
    assert np.array_equal(prepared.matrix.toarray(), expected)
    assert prepared.notes == ("1 sparse column of 2 not in the model",)


def test_dense_columns_beside_sparse_ones_stand_first(rows):
    both = table(rows, columns={"age": np.arange(60.0)})
    fitted = Preprocessing.fit(both, "none")
    assert fitted.features[0] == "age"
    assert np.array_equal(fitted.apply_sparse(both).matrix.toarray()[:, 0], np.arange(60.0))


def test_sparse_columns_are_never_left_out_silently(rows):
    fitted = Preprocessing.fit(table(rows), "none")
    with pytest.raises(LocalProtocolError):
        fitted.apply(table(rows))
    with pytest.raises(DataError, match="dense ones in training"):
        Preprocessing.fit(table(rows).dense(), "none").apply_sparse(table(rows))


def test_a_huge_column_is_named(rows):
    rows[0, 4] = 1e200
    with pytest.raises(NumericError, match="'4' is too large"):
        Preprocessing.fit(table(rows), "standardize")


@pytest.mark.parametrize(
    "damage",
    [{"numbers": [2, 1]}, {"numbers": [1]}, {"scales": [1.0, 0.0]}, {"scales": [1.0, float("inf")]}, {}],
)
def test_a_damaged_model_is_refused(damage):
    document = {"kind": "columns", "version": 1, "columns": [], "constant": []}
    document["sparse"] = {"numbers": [1, 2], "scales": [1.0, 2.0], **damage} if damage else {}
    with pytest.raises(DataError, match="damaged"):
        Preprocessing.from_json(document)


def test_what_is_too_wide_to_be_written_out_is_refused_before_memory_is_taken():
    wide = csr_array((np.ones(2), [0, 300_000], [0, 1, *[2] * 1000]), shape=(1001, 300_001))
    columns = SparseColumns(np.arange(300_001), wide)
    with pytest.raises(DataError, match="needs every number"):
        columns.dense("rows")


@pytest.mark.parametrize("rule", ["sgd", "svrg", "saga"])
def test_sparse_and_dense_rows_train_the_same_block(rows, rule):
    matrix = Preprocessing.fit(table(rows), "standardize").apply_sparse(table(rows)).matrix
    blocks = []
    for features in (SparseRows(matrix), DenseRows(matrix.toarray())):
        state = rule_named(rule, features)
        if state.needs_reference:
            state.refer_to(np.linspace(-1, 1, 60))
        block = Block(features, tuple("abcdefg"), state, penalty_named("logistic", np.full(7, 0.01)))
        for start in range(0, 60, 6):
            block.apply(np.arange(start, start + 6), np.linspace(-0.5, 0.5, 6), 0.1)
        blocks.append(block.weights)
    assert np.allclose(*blocks, rtol=0, atol=1e-13)


def test_memory_grows_with_the_values_that_are_there_and_not_with_rows_times_columns(tmp_path):
    """100,000 rows of 60,000 columns are 48 GB when written out; 400,000 values are a few megabytes."""
    rows, columns, values = 100_000, 60_000, 400_000
    rng = np.random.default_rng(1)
    drawn = (rng.normal(size=values), (np.repeat(np.arange(rows), 4), rng.integers(0, columns, values)))
    matrix = csr_array(drawn, shape=(rows, columns))
    matrix.indices, matrix.indptr = matrix.indices.astype("i4"), matrix.indptr.astype("i4")
    path = tmp_path / "wide.libsvm"
    dump_svmlight_file(matrix, np.where(rng.random(rows) < 0.5, -1, 1), str(path), zero_based=False)
    size_bytes = 16 * values

    tracemalloc.start()
    read = read_table(open_source(LibsvmFile(path, None)), TableRequest("d", IdRule()))
    ordered = read.take(np.arange(rows)[::-1])
    fitted = Preprocessing.fit(ordered.take(np.arange(80_000)), "standardize")
    features = SparseRows(fitted.apply_sparse(ordered).matrix)
    width = features.shape[1]
    rule = rule_named("saga", features)
    block = Block(features, fitted.features, rule, penalty_named("logistic", np.full(width, 1e-4)))
    for start in range(0, 2_560, 256):
        batch = np.arange(start, start + 256)
        block.apply(batch, block.scores(batch) - 0.5, 0.1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert width > 50_000
    assert np.count_nonzero(block.weights) > 5_000
    # Ids, names and some copies of the values; a thousandth of what dense columns would take.
    assert peak < 15 * size_bytes
    assert rows * columns * 8 > 400 * peak
