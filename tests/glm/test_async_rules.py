"""Update rules, losses and rows for asynchronous training, each against a plain formula."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_matrix, random_array

from common.errors import DataError, JobError, LocalProtocolError
from common.glm.block import Block
from common.glm.feature_rows import DenseRows, SparseRows
from common.glm.row_order import RowOrder
from common.glm.score_losses import Ridge, loss_named, penalty_named
from common.glm.step_size import StepSchedule, StepTrials
from common.glm.update_rules import Saga, rule_named
from tests.roles.vfb2_loop import Job, best_objective, objective, toy

LOSSES = pytest.mark.parametrize("name", ["logistic", "logistic_nonconvex", "squared", "robust"])
RULES = pytest.mark.parametrize("rule", ["sgd", "svrg", "saga"])
RNG = np.random.default_rng(4)


def batch(*rows):
    return np.array(rows, dtype=np.int64)


@LOSSES
def test_theta_is_the_derivative_of_the_loss_by_the_score(name):
    loss, h = loss_named(name), 1e-6
    for score in (-30.0, -2.0, -0.1, 0.0, 0.3, 4.0, 30.0):
        for label in (-1.0, 1.0):
            y, z = np.array([label]), np.array([score])
            numeric = (loss.mean(z + h, y) - loss.mean(z - h, y)) / (2 * h)
            assert loss.thetas(z, y)[0] == pytest.approx(numeric, rel=1e-7, abs=1e-8)


@LOSSES
def test_the_gradient_of_the_penalty_is_its_derivative(name):
    penalty, w, h = penalty_named(name, np.array([0.3, 0.0, 2.0])), np.array([1.5, -2.0, -0.2]), 1e-6
    for column in range(3):
        shift = h * np.eye(3)[column]
        numeric = (penalty.value(w + shift) - penalty.value(w - shift)) / (2 * h)
        assert penalty.gradient(w)[column] == pytest.approx(numeric, abs=1e-8)


def test_losses_overflow_nowhere():
    scores, labels = np.array([1e300, -1e300, 800.0]), np.array([-1.0, 1.0, -1.0])
    assert loss_named("logistic").thetas(scores, labels) == pytest.approx([1.0, -1.0, 1.0])
    assert np.isfinite(loss_named("logistic").mean(scores, labels))


@settings(max_examples=60)
@given(
    matrix=arrays(np.float64, (7, 5), elements=st.sampled_from([0.0, 0.0, 0.0, 1.0, -2.5, 1e-3])),
    rows=st.lists(st.integers(0, 6), min_size=1, max_size=7, unique=True),
    data=st.data(),
)
def test_sparse_rows_equal_dense_ones(matrix, rows, data):
    chosen = batch(*rows)
    values = st.floats(-10, 10)
    weights = data.draw(arrays(np.float64, 5, elements=values))
    coefficients = data.draw(arrays(np.float64, len(rows), elements=values))
    everything = data.draw(arrays(np.float64, 7, elements=values))
    dense, sparse = DenseRows(matrix), SparseRows(csr_matrix(matrix))
    assert dense.shape == sparse.shape == (7, 5)
    assert sparse.scores(chosen, weights) == pytest.approx(dense.scores(chosen, weights), abs=1e-12)
    assert sparse.combine(chosen, coefficients) == pytest.approx(
        dense.combine(chosen, coefficients), abs=1e-12
    )
    assert sparse.combine_all(everything) == pytest.approx(dense.combine_all(everything), abs=1e-12)


def test_wide_sparse_rows_cost_memory_for_their_entries_only():
    import tracemalloc

    matrix = random_array((2000, 100_000), density=1e-4, format="csr", rng=RNG)  # dense: 1.6 GB
    tracemalloc.start()
    rows = SparseRows(matrix)
    for name in ("sgd", "svrg", "saga"):
        rule = rule_named(name, rows)
        if rule.needs_reference:
            rule.refer_to(np.ones(2000))
        block = Block(rows, (), rule, Ridge(np.full(100_000, 1e-4)))
        block.apply(batch(5, 7), np.array([0.5, -0.5]), 0.1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 8 * (matrix.nnz + 100_000)


def test_sparse_features_are_a_table():
    with pytest.raises(DataError, match="rows and columns"):
        SparseRows(np.zeros((2, 2, 2)))


@pytest.mark.parametrize(
    ("rule", "bounds"),
    [
        ("sgd", {5: (1e-3, 8e-2), 10: (1e-3, 8e-2), 20: (1e-3, 8e-2)}),
        ("svrg", {5: (1e-10, 1e-7), 10: (-1e-15, 4e-15), 20: (-1e-15, 1e-15)}),
        ("saga", {5: (1e-6, 2e-4), 10: (1e-9, 2e-6), 20: (-1e-15, 5e-12)}),
    ],
)
def test_with_independent_draws_the_toy_problem_ends_in_the_stated_orders_of_magnitude(rule, bounds):
    job, (X, y), rng = Job(rule=rule), toy(), np.random.default_rng(1)
    features, loss = DenseRows(X), loss_named("logistic")
    block = Block(features, tuple("x" * 12), rule_named(rule, features), Ridge(np.full(12, job.l2)))
    best = best_objective(job, X, y)
    for epoch in range(1, 21):
        if block.rule.needs_reference:
            block.rule.refer_to(loss.thetas(X @ block.weights, y))
        for row in rng.integers(400, size=400):
            chosen = batch(row)
            block.apply(chosen, loss.thetas(block.scores(chosen), y[chosen]), 0.5)
        if epoch in bounds:
            low, high = bounds[epoch]
            assert low < objective(job, X, y, block.weights) - best < high


@RULES
def test_gradients_are_unbiased_over_a_pass(rule):
    features = DenseRows(RNG.normal(size=(20, 3)))
    thetas = RNG.normal(size=20)
    full = features.combine_all(thetas) / 20
    gradients = []
    for row in range(20):
        state = rule_named(rule, features)
        if state.needs_reference:
            state.refer_to(np.linspace(-1, 1, 20))
        state.restore({**state.tables()})
        gradients.append(state.gradient(batch(row), thetas[[row]]))
    assert np.mean(gradients, axis=0) == pytest.approx(full, abs=1e-12)


@RULES
def test_a_rule_goes_on_from_its_tables(rule):
    features = DenseRows(RNG.normal(size=(9, 3)))
    one, other = rule_named(rule, features), rule_named(rule, features)
    if one.needs_reference:
        one.refer_to(RNG.normal(size=9))
    one.gradient(batch(2, 4), np.array([0.5, 0.1]))
    kept = one.tables()
    expected = one.gradient(batch(2, 7), np.array([0.2, 0.3]))
    other.restore(kept)
    assert np.array_equal(other.gradient(batch(2, 7), np.array([0.2, 0.3])), expected)


def test_rules_refuse_what_they_have_no_use_for():
    features = DenseRows(np.ones((2, 1)))
    for name in ("sgd", "saga"):
        with pytest.raises(LocalProtocolError, match="no use"):
            rule_named(name, features).refer_to(np.zeros(2))
    with pytest.raises(LocalProtocolError, match="no derivatives"):
        rule_named("svrg", features).gradient(batch(0), np.ones(1))


def test_sagas_average_stays_that_of_its_table_however_many_threads_change_it():
    features = DenseRows(RNG.normal(size=(50, 400)))
    rule = Saga(features)

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            rule.gradient(rng.permutation(50)[:3].astype(np.int64), rng.normal(size=3))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    tables = rule.tables()
    assert tables["average"] == pytest.approx(features.combine_all(tables["table"]) / 50, abs=1e-12)


def gradient_norm_after(rule, columns, workers):
    """Train for 15 epochs on so many threads; return the norm of the full gradient, relative to the start."""
    X, y = toy(100, columns)
    features, loss = DenseRows(X), loss_named("logistic")
    block = Block(features, ("x",) * columns, rule_named(rule, features), Ridge(np.full(columns, 1e-2)))

    def work(rows):
        for row in rows:
            chosen = batch(row)
            block.apply(chosen, loss.thetas(block.scores(chosen), y[chosen]), 0.5)

    def full_gradient():
        return X.T @ loss.thetas(X @ block.weights, y) / 100 + 1e-2 * block.weights

    start = np.linalg.norm(full_gradient())
    for epoch in range(15):
        if block.rule.needs_reference:
            block.rule.refer_to(loss.thetas(X @ block.weights, y))
        with ThreadPoolExecutor(workers) as threads:
            list(threads.map(work, np.random.default_rng(epoch).permutation(100).reshape(4, 25)))
    return np.linalg.norm(full_gradient()) / start


@RULES
@pytest.mark.parametrize("columns", [8, 3000])
def test_threads_without_locks_converge_like_one_thread(rule, columns):
    """3000 columns: numpy lets other threads run in the middle of an update."""
    alone, together = (gradient_norm_after(rule, columns, workers) for workers in (1, 4))
    assert together < (0.9 if rule == "sgd" else 0.05)
    assert together < 5 * alone


def test_the_order_of_rows_is_pinned():
    order = RowOrder(7, 3, 42, "party_b")
    assert [order.batch(number).tolist() for number in (1, 2, 3, 1)] == [
        [2, 4, 1],
        [6, 0, 5],
        [6, 4, 0],
        [2, 4, 1],
    ]
    assert not np.array_equal(RowOrder(50, 50, 1, "b1").batch(1), RowOrder(50, 50, 1, "b2").batch(1))


@given(rows=st.integers(1, 40), data=st.data())
def test_a_pass_names_no_row_twice(rows, data):
    size = data.draw(st.integers(1, rows))
    order = RowOrder(rows, size, 3, "b")
    taken = np.concatenate([order.batch(number) for number in range(1, rows // size + 1)])
    assert len(set(taken.tolist())) == len(taken) == rows // size * size
    assert set(taken.tolist()) <= set(range(rows))


def test_where_there_are_fewer_rows_than_a_batch_should_have_it_is_all_of_them():
    assert sorted(RowOrder(7, 500, 1, "b").batch(3).tolist()) == list(range(7))


def test_batches_that_cannot_be_are_refused():
    with pytest.raises(DataError, match="cannot be taken"):
        RowOrder(7, 0, 1, "b")
    with pytest.raises(LocalProtocolError, match="counted from 1"):
        RowOrder(7, 1, 1, "b").batch(0)


def test_step_sizes_fall_as_scheduled():
    assert [StepSchedule(0.5, 1.0).at(epoch) for epoch in (1, 2, 4)] == [0.5, 0.25, 0.125]
    assert StepSchedule(0.5).at(9) == 0.5


def test_of_the_step_sizes_the_one_that_ends_lowest_is_taken():
    trials = StepTrials(0.7, (0.5, 0.1, 0.01))
    with pytest.raises(LocalProtocolError, match="not been tried"):
        trials.chosen()
    for step, end in ((0.5, np.inf), (0.1, 0.4), (0.01, 0.6)):
        trials.record(step, end)
    assert trials.chosen() == 0.1
    assert "0.5 → inf, 0.1 → 0.4, 0.01 → 0.6" in trials.describe()
    with pytest.raises(LocalProtocolError, match="not among"):
        trials.record(0.1, 0.1)


def test_when_no_step_size_lowers_the_objective_the_job_ends():
    trials = StepTrials(0.7, (0.5,))
    trials.record(0.5, float("nan"))
    with pytest.raises(JobError, match="no step size"):
        trials.chosen()
