"""VFB² as a loop without network, for tests: every party's role, and what crosses between them as bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from common.crypto.aggregation_trees import plan_trees, star
from common.crypto.entropy import SeededEntropy
from common.crypto.pairwise_masks import AgreementKey
from common.crypto.secure_sum import (
    OpenShares,
    PairwiseScheme,
    RingFixedPoint,
    TreeScheme,
    words_from_bytes,
    words_to_bytes,
)
from common.glm.asynchronous import EpochEnd, Progress
from common.glm.block import Block
from common.glm.collaboration import Collaboration
from common.glm.epochs import EpochKeeper
from common.glm.feature_rows import DenseRows, SparseRows
from common.glm.outbox import Outbox
from common.glm.row_order import RowOrder
from common.glm.score_losses import loss_named, penalty_named
from common.glm.step_size import StepSchedule
from common.glm.update_rules import rule_named
from party_a.vfb2 import Collaborator
from party_b.vfb2 import Dominance, Dominator


@dataclass(frozen=True)
class Job:
    """What the parties have agreed on."""

    parties: int = 4
    active: int = 1
    rule: str = "svrg"
    loss: str = "logistic"
    aggregation: str = "flat"
    l2: float = 1e-2
    step: float = 0.5
    batch_size: int = 1
    max_staleness: int = 8
    seed: int = 3
    sparse: bool = False

    @property
    def names(self):
        return [f"party_{index}" for index in range(self.parties)]

    @property
    def dominators(self):
        """The last ones are active, so that roots are not always first by name."""
        return self.names[self.parties - self.active :]


def toy(rows=400, columns=12, seed=5):
    """The toy problem: rows of length 1, so that a step of 0.5 suits the logistic loss; labels −1 and +1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    margin = X @ rng.normal(size=columns) * np.sqrt(columns)
    return X, np.where(margin + rng.logistic(size=rows) > 0, 1.0, -1.0)


def blocks(columns, parties):
    """Deal columns to parties, the first ones one more."""
    return np.array_split(np.arange(columns), parties)


def collaboration(job, X, columns):
    features = SparseRows(X[:, columns]) if job.sparse else DenseRows(X[:, columns])
    names = tuple(f"x{column}" for column in columns)
    penalty = penalty_named(job.loss, np.full(len(columns), job.l2))
    block = Block(features, names, rule_named(job.rule, features), penalty)
    return Collaboration(block, Progress(job.dominators, job.max_staleness), StepSchedule(job.step))


def schemes(job):
    scale = RingFixedPoint(40, job.parties)
    if job.aggregation != "pairwise":
        pairs = {root: plan_trees(job.names, root, job.aggregation) for root in job.dominators}
        return {name: TreeScheme(name, pairs, scale, SeededEntropy(name.encode())) for name in job.names}
    keys = {name: AgreementKey(SeededEntropy(name.encode())) for name in job.names}
    trees = {root: star(job.names, root) for root in job.dominators}
    return {
        name: PairwiseScheme(
            name,
            trees,
            scale,
            keys[name].seeds(name, b"job", {peer: keys[peer].public for peer in job.names if peer != name}),
        )
        for name in job.names
    }


def make_party(job, X, y, name, first_request=1):
    columns = blocks(X.shape[1], job.parties)[job.names.index(name)]
    block, shares = collaboration(job, X, columns), OpenShares(schemes(job)[name], 4 * job.max_staleness)
    if name not in job.dominators:
        return Collaborator(block, shares)
    others = [other for other in job.names if other != name]
    order = RowOrder(len(X), job.batch_size, job.seed, name)
    outbox = Outbox(others, job.max_staleness)
    return Dominator(block, shares, Dominance(name, y, loss_named(job.loss), order, outbox, first_request))


@dataclass
class World:
    """All parties of a job."""

    job: Job
    X: np.ndarray
    y: np.ndarray
    roles: dict = field(default_factory=dict)
    updates: list = field(default_factory=list)  # in the order in which they were begun
    wire: list = field(default_factory=list)  # (sender, receiver, tree, request, words)

    def __post_init__(self):
        self.roles = {name: make_party(self.job, self.X, self.y, name) for name in self.job.names}

    @property
    def weights(self):
        return np.concatenate([self.roles[name].weights for name in self.job.names])

    @property
    def keeper(self):
        return self.roles[self.job.dominators[0]]

    def aggregate(self, request):
        """Algorithm 1, towards the root of the request."""
        shares = {name: role.contribute(request) for name, role in self.roles.items()}
        for tree in shares[request.root].trees:
            waiting = [name for name in shares if name != request.root]
            while waiting:
                name = next(party for party in waiting if shares[party].complete(tree))
                parent = shares[name].parent(tree)
                words = words_from_bytes(words_to_bytes(shares[name].partial_sum(tree)), request.length)
                self.wire.append((name, parent, tree, request, words))
                self.roles[parent].absorb(request.root, request.number, tree, name, words)
                waiting.remove(name)

    def deliver(self, update):
        """Give an update to everybody, who acknowledge it at once."""
        for name, role in self.roles.items():
            role.apply(update)
            if name != update.dominator:
                applied = role.collaboration.progress.counts[update.dominator]
                self.roles[update.dominator].outbox.acknowledge(name, applied, applied)

    def dominated(self, dominator):
        """Algorithm 2 up to sending."""
        request = self.roles[dominator].pick()
        self.aggregate(request)
        self.updates.append(self.roles[dominator].dominate(request))
        return self.updates[-1]

    def freeze(self):
        cut = self.keeper.collaboration.progress.counts
        end = EpochEnd(self.keeper.collaboration.epoch, cut)
        for role in self.roles.values():
            role.collaboration.freeze(end)

    def measure(self, piece=150):
        """Measure the objective at the frozen blocks; with SVRG, hand out θ̃."""
        for request in self.keeper.ask_measure(piece):
            self.aggregate(request)
            self.keeper.take_measure(request.number)
        if self.keeper.collaboration.phase == "referring":
            for part in self.keeper.reference(piece):
                for role in self.roles.values():
                    role.collaboration.absorb_reference(part)
        return self.keeper.objective()

    def epoch(self):
        """Run the updates of one epoch, dominators in turn, each with the weights as they are."""
        done, before = 0, self.keeper.collaboration.progress.rows
        while self.keeper.collaboration.progress.rows - before < len(self.X):
            self.deliver(self.dominated(self.job.dominators[done % self.job.active]))
            done += 1

    def start_over(self, step):
        for name, role in self.roles.items():
            (role if name in self.job.dominators else role.collaboration).start_over(step)

    def train(self, max_epochs, tolerance=None):
        """Run the whole protocol; return the keeper with the objectives."""
        keeper = EpochKeeper(len(self.X), max_epochs, tolerance)
        self.freeze()
        verdict = keeper.judge(0, self.measure())
        while not verdict.last:
            self.epoch()
            for name in self.job.dominators:
                self.roles[name].halt()
            self.freeze()
            verdict = keeper.judge(verdict.epoch + 1, self.measure())
            for name in self.job.dominators:
                self.roles[name].resume()
        end = EpochEnd(verdict.epoch + 1, self.keeper.collaboration.progress.counts)
        for role in self.roles.values():
            role.collaboration.finish(end)
        return keeper


def penalty_value(job, w):
    return penalty_named(job.loss, np.full(len(w), job.l2)).value(w)


def objective(job, X, y, w):
    return loss_named(job.loss).mean(X @ w, y) + penalty_value(job, w)


def best_objective(job, X, y):
    """Return the pooled optimum of a convex objective, to rounding."""
    loss, penalty = loss_named(job.loss), penalty_named(job.loss, np.full(X.shape[1], job.l2))

    def gradient(w):
        return X.T @ loss.thetas(X @ w, y) / len(y) + penalty.gradient(w)

    start, options = np.zeros(X.shape[1]), {"gtol": 1e-14, "maxiter": 5000}
    found = minimize(lambda w: objective(job, X, y, w), start, jac=gradient, method="BFGS", options=options)
    return objective(job, X, y, found.x)


def pooled_replay(job, X, y, updates):
    """The same rule on pooled data over the same batches: one vector of weights, written down plainly."""
    n, d = X.shape
    w, table, average, reference = np.zeros(d), np.zeros(n), np.zeros(d), None
    loss, penalty, epoch = loss_named(job.loss), penalty_named(job.loss, np.full(d, job.l2)), 0
    for update in updates:
        if update.epoch != epoch and job.rule == "svrg":
            reference = loss.thetas(X @ w, y)
            mean = X.T @ reference / n
        epoch = update.epoch
        rows = update.rows
        thetas = loss.thetas(X[rows] @ w, y[rows])
        if job.rule == "sgd":
            v = X[rows].T @ thetas / len(rows)
        elif job.rule == "svrg":
            v = X[rows].T @ (thetas - reference[rows]) / len(rows) + mean
        else:
            change = X[rows].T @ (thetas - table[rows])
            v = change / len(rows) + average
            table[rows] = thetas
            average = average + change / n
        w = w - job.step * (v + penalty.gradient(w))
    return w
