"""VFB² as a loop without network: it is pooled training on the same batches, and converges as stated."""

from __future__ import annotations

import numpy as np
import pytest

from tests.roles.vfb2_loop import Job, World, best_objective, objective, pooled_replay, toy

RULES = pytest.mark.parametrize("rule", ["sgd", "svrg", "saga"])
AGGREGATIONS = pytest.mark.parametrize("aggregation", ["flat", "binomial", "pairwise"])
X, Y = toy()
SMALL_X, SMALL_Y = toy(60, 9)


@pytest.mark.parametrize(
    ("rule", "bounds"),
    [
        ("sgd", {5: 4e-2, 10: 3e-2}),
        ("svrg", {5: 2e-8, 10: 4e-15}),
        ("saga", {5: 6e-5, 10: 1e-7}),
    ],
)
def test_the_toy_problem_converges_at_least_as_fast_as_stated(rule, bounds):
    job = Job(parties=4, rule=rule)
    world, reached = World(job, X, Y), []
    plain = world.freeze

    def freeze():
        plain()
        reached.append(objective(job, X, Y, world.weights))  # without the 1e-13 that a masked sum is off

    world.freeze = freeze
    keeper = world.train(max(bounds))
    assert np.abs(np.array(keeper.objectives) - reached).max() < 1e-12
    best = best_objective(job, X, Y)
    assert [reached[epoch] - best for epoch, bound in bounds.items() if reached[epoch] - best >= bound] == []
    if rule == "sgd":  # a constant step ends in a ball around the optimum
        assert reached[10] - best > 1e-4


@RULES
@pytest.mark.parametrize("parties", [2, 3, 4, 8])
@pytest.mark.parametrize("active", [1, 2, "all"])
@AGGREGATIONS
def test_training_equals_pooled_training_on_the_same_batches(rule, parties, active, aggregation):
    job = Job(parties, parties if active == "all" else active, rule, aggregation=aggregation, batch_size=4)
    world = World(job, SMALL_X, SMALL_Y)
    keeper = world.train(2)
    expected = pooled_replay(job, SMALL_X, SMALL_Y, world.updates)
    assert np.abs(world.weights - expected).max() < 1e-10
    assert keeper.objectives[-1] == pytest.approx(objective(job, SMALL_X, SMALL_Y, world.weights), abs=1e-10)
    assert {update.dominator for update in world.updates} == set(job.dominators)
    digests = {role.collaboration.progress.digest for role in world.roles.values()}
    assert len(digests) == 1


@RULES
@pytest.mark.parametrize("loss", ["logistic", "logistic_nonconvex", "squared", "robust"])
def test_every_loss_equals_pooled_training_and_goes_down(rule, loss):
    job = Job(3, 2, rule, loss, step=0.2)
    world = World(job, SMALL_X, SMALL_Y)
    keeper = world.train(4)
    expected = pooled_replay(job, SMALL_X, SMALL_Y, world.updates)
    assert np.abs(world.weights - expected).max() < 1e-10
    assert keeper.objectives[-1] < keeper.objectives[0]


@RULES
def test_sparse_columns_train_like_dense_ones(rule):
    thin = np.where(np.abs(SMALL_X) > 0.3, SMALL_X, 0.0)
    weights = []
    for sparse in (False, True):
        world = World(Job(3, 1, rule, batch_size=3, sparse=sparse), thin, SMALL_Y)
        world.train(3)
        weights.append(world.weights)
    assert np.abs(weights[0] - weights[1]).max() < 1e-10


def test_all_aggregations_lead_to_the_same_weights_bit_by_bit():
    weights = []
    for aggregation in ("flat", "binomial", "pairwise"):
        world = World(Job(5, 2, "saga", aggregation=aggregation), SMALL_X, SMALL_Y)
        world.train(1)
        weights.append(world.weights)
    assert np.array_equal(weights[0], weights[1])
    assert np.array_equal(weights[0], weights[2])


def test_training_ends_when_the_objective_has_settled():
    keeper = World(Job(3, rule="svrg"), SMALL_X, SMALL_Y).train(60, tolerance=1e-9)
    assert 3 < len(keeper.objectives) < 60


class Delayed:
    """Updates of two dominators on their way: applied late, and in another order at every party."""

    def __init__(self, world, seed):
        self.world, self.rng = world, np.random.default_rng(seed)
        self.queues = {name: {d: [] for d in world.job.dominators} for name in world.job.names}

    def begin(self):
        dominator = self.world.job.dominators[self.rng.integers(2)]
        if self.world.roles[dominator].may_pick():
            update = self.world.dominated(dominator)
            for queues in self.queues.values():
                queues[dominator].append(update)

    def deliver_some(self):
        for _ in range(5):
            names = self.world.job.names
            self.deliver(
                names[self.rng.integers(len(names))], self.world.job.dominators[self.rng.integers(2)]
            )

    def deliver(self, name, dominator):
        if self.queues[name][dominator]:
            role = self.world.roles[name]
            role.apply(self.queues[name][dominator].pop(0))
            if name != dominator:
                applied = role.collaboration.progress.counts[dominator]
                self.world.roles[dominator].outbox.acknowledge(name, applied, applied)

    def drain(self):
        for name, queues in self.queues.items():
            for dominator, queue in queues.items():
                while queue:
                    self.deliver(name, dominator)


@RULES
def test_stale_updates_of_two_dominators_at_once_still_converge(rule):
    job = Job(4, 2, rule, batch_size=2, step=0.2, max_staleness=6)
    world = World(job, SMALL_X, SMALL_Y)
    delayed = Delayed(world, 0)
    world.freeze()
    start = world.measure()
    for epoch in range(1, 13):
        while world.keeper.collaboration.progress.rows < epoch * 60:
            delayed.begin()
            delayed.deliver_some()
        for name in job.dominators:
            world.roles[name].halt()
        delayed.drain()
        world.freeze()
        end = world.measure()
        for name in job.dominators:
            world.roles[name].resume()
    assert start - end > 0.9 * (start - best_objective(job, SMALL_X, SMALL_Y))
    histogram = world.roles["party_0"].collaboration.progress.staleness
    assert sum(histogram.values()) == len(world.updates)
    assert max(histogram) > 2


def test_a_pass_takes_every_row_once_and_dominators_take_them_in_their_own_order():
    world = World(Job(4, 2, "sgd"), SMALL_X, SMALL_Y)
    world.train(4)
    taken = {
        name: [int(u.rows[0]) for u in world.updates if u.dominator == name] for name in world.job.dominators
    }
    passes = [rows[start : start + 60] for rows in taken.values() for start in (0, 60)]
    assert all(sorted(rows) == list(range(60)) for rows in passes)
    assert len({tuple(rows) for rows in passes}) == 4
