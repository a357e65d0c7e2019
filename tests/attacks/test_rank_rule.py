"""Rule 1.2.5: no party can solve its own gradients for the other side's rows.

What the attacks use is what a party knows by itself: its columns, the batches, and its unmasked gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from common.crypto.cipher import PaillierCipher, parse_ciphertexts
from common.crypto.entropy import SystemEntropy
from common.crypto.fixed_point import FixedPoint
from common.crypto.private_key import PrivateKey
from common.data.split import BatchSchedule
from common.errors import PeerRefused
from common.glm.gradient_descent import GradientStep
from common.glm.losses import SQUARED
from common.glm.rank_rule import RANK_MARGIN
from common.glm.solvers import GradientDescent
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb.active_party_pb2 import JOB_FAILED, JOB_FINISHED, JobRecord
from common.runtime.compute import InProcessExecutor
from party_a.he_linear import PassiveRegression
from party_b.he_linear import ActiveRegression, LabelledRows
from tests.attacks.byhand import by_hand
from tests.attacks.world import CALL_S, KEY_BITS, Rows, World, job_of, turn_of


@dataclass
class View:
    """What a party learns in a run, and the truth that it would like to know.

    Attributes:
        batches: Row numbers, a round each.
        gradients: Its unmasked gradients.
        targets: d of the batch at A, u_A of the batch at B.
    """

    batches: list[np.ndarray]
    gradients: list[np.ndarray]
    targets: list[np.ndarray]


def run(rows: Rows, schedule: BatchSchedule, rounds: int, rate: float) -> tuple[View, View]:
    """Run the roles without services, so that refused jobs run, too; return A's view and B's.

    A party's gradient is what its weights tell it: they move by it.
    """
    key = PrivateKey.generate(KEY_BITS, SystemEntropy())
    cipher = PaillierCipher(key.public, InProcessExecutor(), SystemEntropy())
    scale, entropy = FixedPoint(32), SystemEntropy()

    def step(columns: int) -> GradientDescent:
        names = tuple(map(str, range(columns)))
        return GradientDescent(GradientStep(names, rate, np.zeros(columns)), SQUARED)

    a = PassiveRegression(rows.passive, schedule, step(rows.passive.shape[1]), cipher, scale, entropy)
    labelled = LabelledRows(rows.active, rows.labels)
    b = ActiveRegression(labelled, schedule, step(rows.active.shape[1]), cipher, scale, entropy)
    views = View([], [], []), View([], [], [])
    for number in range(1, rounds + 1):
        batch = schedule.rows_of(number)
        before = a.weights, b.weights
        u = rows.passive[batch] @ a.weights
        z = rows.active[batch] @ b.weights - rows.labels[batch]
        a.begin(number)
        b.begin(number)
        d = b.add_residuals([a.encrypt_scores(slice(0, len(batch))).opened()])
        a.absorb_residuals(parse_ciphertexts(d.to_bytes(), key.public, len(batch)))
        for role in (a, b):
            role.apply([key.decrypt(one) for one in role.masked_gradient().opened().ciphertexts()])
        moved = (before[0] - a.weights, before[1] - b.weights)
        found = [change * len(batch) / rate for change in moved]
        found[1] = found[1] - rows.active[batch].T @ z
        for view, gradient, target in zip(views, found, (u + z, u), strict=True):
            view.batches.append(batch)
            view.gradients.append(gradient)
            view.targets.append(target)
    return views


def solved(features: np.ndarray, view: View, at: int) -> np.ndarray:
    """Run the attack on one round: the least-squares solution of X_S'd = g."""
    return np.linalg.lstsq(features[view.batches[at]].T, view.gradients[at], rcond=None)[0]


def one_vector(features: np.ndarray, view: View, rounds: range) -> tuple[np.ndarray, int]:
    """Run the attack on many rounds together, as if the residuals of the rows did not move between them."""
    system = np.zeros((len(rounds), features.shape[1], len(features)))
    for row, at in enumerate(rounds):
        system[row][:, view.batches[at]] = features[view.batches[at]].T
    flat = system.reshape(-1, len(features))
    gradients = np.concatenate([view.gradients[at] for at in rounds])
    return np.linalg.lstsq(flat, gradients, rcond=1e-9)[0], int(np.linalg.matrix_rank(flat))


def drawn(rows: int, columns: tuple[int, int], seed: int = 3) -> Rows:
    rng = np.random.default_rng(seed)
    passive, active = rng.normal(size=(rows, columns[0])), rng.normal(size=(rows, columns[1]))
    labels = passive.sum(axis=1) + active.sum(axis=1) + rng.normal(size=rows) * 3
    return Rows(passive, active, labels)


def near(found: np.ndarray, truth: np.ndarray) -> float:
    """Return how much of the truth an attack found: 1 for all, 0 for no better than nothing."""
    return float(1 - ((found - truth) ** 2).sum() / (truth**2).sum())


def test_where_rows_are_as_few_as_columns_both_sides_solve_for_every_row() -> None:
    """The attack works: this is why the rule is there."""
    rows = drawn(5, (5, 5))
    a, b = run(rows, BatchSchedule(5, None, 0), 3, 0.01)
    for at in range(3):
        assert solved(rows.passive, a, at) == pytest.approx(a.targets[at], abs=1e-5)
        assert solved(rows.active, b, at) == pytest.approx(b.targets[at], abs=1e-5)
    assert solved(rows.passive, a, 0) == pytest.approx(-rows.labels, abs=1e-5)


def test_in_the_smallest_job_that_is_allowed_neither_side_can_solve() -> None:
    columns = 5
    count = 2 * columns + RANK_MARGIN
    rows = drawn(count, (columns, columns))
    a, b = run(rows, BatchSchedule(count, None, 0), 10, 0.05)
    for features, view in ((rows.passive, a), (rows.active, b)):
        for at in range(1, 10):
            truth, found = view.targets[at], solved(features, view, at)
            rank = np.linalg.matrix_rank(features[view.batches[at]])
            assert count - rank >= RANK_MARGIN + columns
            assert near(found, truth) < 0.8
            # Quite another vector explains the gradient as well as the truth does.
            other = 2 * found - truth
            assert features.T @ other == pytest.approx(view.gradients[at], abs=1e-4)
            assert np.abs(other - truth).max() > 0.1 * np.abs(truth).max()


def test_all_rounds_of_a_full_batch_job_hold_no_more_equations_than_one() -> None:
    rows = drawn(30, (5, 5))
    a, b = run(rows, BatchSchedule(30, None, 0), 40, 0.05)
    for features, view in ((rows.passive, a), (rows.active, b)):
        _, rank = one_vector(features, view, range(40))
        assert rank == 5


@pytest.mark.parametrize("side", ["A", "B"])
def test_mini_batches_over_many_epochs_do_not_add_up_to_the_rows(side: str) -> None:
    """Batches dealt anew in every epoch would: once the weights have settled, d hardly moves any more."""
    rows, rounds = drawn(80, (4, 4)), 160
    schedule = BatchSchedule(80, 20, 0)
    view = dict(zip("AB", run(rows, schedule, rounds, 0.05), strict=True))[side]
    features = rows.passive if side == "A" else rows.active
    settled = range(rounds // 2, rounds)
    found, rank = one_vector(features, view, settled)
    last = view.batches[-schedule.batches :]
    truth = np.zeros(80)
    for batch, target in zip(last, view.targets[-schedule.batches :], strict=True):
        truth[batch] = target
    assert rank <= schedule.batches * features.shape[1] < 80 - RANK_MARGIN
    assert near(found, truth) < 0.9


def test_batches_dealt_anew_would_give_every_residual_away() -> None:
    """The attack of the test above works, where a schedule deals anew."""

    class DealtAnew(BatchSchedule):
        def rows_of(self, round: int) -> np.ndarray:
            epoch, at = divmod(round - 1, self.batches)
            return BatchSchedule(80, 20, epoch).rows_of(at + 1)

    rows, rounds = drawn(80, (4, 4)), 240
    view, _ = run(rows, DealtAnew(80, 20, 0), rounds, 0.02)
    found, rank = one_vector(rows.passive, view, range(rounds // 2, rounds))
    truth = np.zeros(80)
    for batch, target in zip(view.batches, view.targets, strict=True):
        truth[batch] = target
    assert rank == 80
    assert near(found, truth) > 0.95


# (rows, columns of A, columns of B with the intercept, batch size): 2·d + 10 rows are needed.
TOO_SMALL = {
    "all rows, A's columns": (17, 4, 2, None),
    "all rows, B's columns": (17, 2, 4, None),
    "a batch, A's columns": (60, 4, 2, 15),
    "a batch, B's columns": (60, 2, 4, 15),
}
LARGE_ENOUGH = {"all rows": (18, 4, 4, None), "a batch": (60, 4, 4, 18)}


def written(world: World, rows: int, columns: tuple[int, int]) -> None:
    drawn(rows, (columns[0], columns[1] - 1)).write(world)


@pytest.mark.parametrize("case", TOO_SMALL.values(), ids=TOO_SMALL.keys())
async def test_a_refuses_whatever_b_says(world: World, case: tuple[int, int, int, int | None]) -> None:
    rows, a_columns, b_columns, size = case
    written(world, rows, (a_columns, b_columns))
    job = job_of(train={"batch_size": size})
    asked = he.ScoresRequest(turn=turn_of(job, 1))
    async with by_hand(world, job, (a_columns, b_columns)) as b:
        await b.open()
        with pytest.raises(PeerRefused, match="could solve for the other side's rows"):
            await b.prepare(rows)
        with pytest.raises(PeerRefused, match="not been prepared"):
            await anext(aiter(b.a.EncryptScores(asked, timeout=CALL_S)))


async def trained(world: World, case: tuple[int, int, int, int | None]) -> JobRecord:
    rows, a_columns, b_columns, size = case
    written(world, rows, (a_columns, b_columns))
    async with world.running("coordinator", "party_a", "party_b"):
        return await world.train(job_of(train={"batch_size": size}))


@pytest.mark.parametrize("case", TOO_SMALL.values(), ids=TOO_SMALL.keys())
async def test_b_refuses_before_it_asks_a(world: World, case: tuple[int, int, int, int | None]) -> None:
    record = await trained(world, case)
    assert (record.status, record.error.error) == (JOB_FAILED, "Refused")
    assert "could solve for the other side's rows" in record.error.what
    sent = {passage.message_type for passages in world.wire.values() for passage in passages}
    assert not sent & {"vfl.v1.PrepareRequest", "vfl.v1.EncryptedScores", "vfl.v1.MaskedGradient"}


@pytest.mark.parametrize("case", LARGE_ENOUGH.values(), ids=LARGE_ENOUGH.keys())
async def test_a_job_at_the_limit_runs(world: World, case: tuple[int, int, int, int | None]) -> None:
    record = await trained(world, case)
    assert record.status == JOB_FINISHED, record.error.what


@pytest.mark.parametrize(
    "columns", [{"party_a": 1, "party_b": 4}, {"party_a": 4}, {"party_a": 4, "party_b": 0}]
)
async def test_b_cannot_talk_a_out_of_its_own_columns(world: World, columns: dict[str, int]) -> None:
    """B names all columns in Prepare; A knows its own, and every party of the job must be there."""
    written(world, 18, (4, 4))
    async with by_hand(world, job_of(), (4, 4)) as b:
        await b.open()
        b.columns = columns
        with pytest.raises(PeerRefused, match="not those that were declared"):
            await b.prepare(18)
