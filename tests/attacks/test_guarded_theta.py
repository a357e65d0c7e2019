"""VFB² with `theta: encrypted`: what collaborators and dominators can find in the bytes they receive.

A collaborator must not find θ, which shows label and score; a dominator must not find gradients. Each attack
works where its rule is left out, and the rule refuses or prevents it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from common.errors import Refused
from common.glm.rank_rule import require_company, require_rank_margin
from common.glm.row_order import FixedBatches, RowOrder
from tests.attacks.test_masks_are_uniform import assert_uniform
from tests.roles.vfb2_guarded_loop import SCALE, GuardedWorld, schedule
from tests.roles.vfb2_loop import Job, toy

X, Y = toy(240, 8)
JOB = Job(3, 1, "sgd", batch_size=40, step=1e-6)
COLUMNS = slice(0, 3)  # party_0's


def trained(job, *, epochs=2, features=X):
    world = GuardedWorld(job, features, Y)
    world.train(epochs)
    return world


def received_sums(world, name="party_0"):
    """Return (rows, X_S'θ) of every update, as a collaborator has them when its masks are off."""
    found, role = [], world.collaborators[name]
    apply_sums = role.collaboration.apply_sums

    def tapped(update, sums):
        found.append((update.rows, sums.copy()))
        apply_sums(update, sums)

    role.collaboration.apply_sums = tapped
    return found


def test_ciphertexts_of_equal_thetas_have_nothing_in_common():
    """At the zero start every θ is −y/2: whoever could compare ciphertexts would have the labels."""
    world = GuardedWorld(JOB, X, Y)
    world.freeze()
    world.measure()
    ciphertexts, labels = [], []
    for _ in range(6):
        update = world.dominated("party_2")
        ciphertexts += world.guarded["party_2"].sealed(update.number).opened().ciphertexts()
        labels += Y[update.rows].tolist()
        world.guarded["party_2"].dominator.apply(update)
        for name in ("party_0", "party_1"):
            world.roles["party_2"].outbox.acknowledge(name, update.number, update.number)
    assert len(set(ciphertexts)) == 240
    modulus = world.guarded["party_2"].public.modulus_squared
    of_class = [[c / modulus for c, y in zip(ciphertexts, labels, strict=True) if y == z] for z in (-1, 1)]
    assert stats.ks_2samp(*of_class).pvalue > 1e-6
    trial = {pow(1 + modulus, 1, modulus)} | {
        (1 + int(SCALE.encode(np.array([sign * 0.5]))[0]) * world.guarded["party_2"].public.modulus) % modulus
        for sign in (-1, 1)
    }
    assert not trial & set(ciphertexts)


def test_a_collaborator_that_has_more_rows_than_columns_in_a_batch_cannot_solve_for_the_labels():
    world = GuardedWorld(JOB, X, Y)
    sums = received_sums(world)
    world.train(2)
    assert len(sums) == 12
    guesses = []
    for rows, total in sums:
        theta, *_ = np.linalg.lstsq(X[rows, COLUMNS].T, total, rcond=None)
        guesses += (-np.sign(theta) == Y[rows]).tolist()
    # Better than a coin, because it has three equations in forty unknowns, but far from the labels.
    assert np.mean(guesses) < 0.7


def test_with_as_few_rows_as_columns_it_reads_every_label_so_such_batches_are_refused():
    world = GuardedWorld(replace(JOB, batch_size=3), X, Y)
    sums = received_sums(world)
    world.train(1)
    for rows, total in sums:
        theta = np.linalg.solve(X[rows, COLUMNS].T, total)
        assert np.array_equal(-np.sign(theta), Y[rows])
    with pytest.raises(Refused, match="at least 16 rows"):
        require_rank_margin(3, {"party_0": 3})
    require_rank_margin(JOB.batch_size, {"party_0": 3})


def test_a_row_that_is_alone_in_a_column_shows_its_label_so_such_batches_are_refused():
    features = X.copy()
    features[:, 0] = 0.0
    features[::40, 0] = 1.0  # six rows in all: rare, and mostly alone in their batches
    world = GuardedWorld(JOB, features, Y)
    sums = received_sums(world)
    world.train(1)
    read = 0
    for rows, total in sums:
        (alone,) = np.nonzero(features[rows, 0])
        if len(alone) == 1:
            assert -np.sign(total[0]) == Y[rows[alone[0]]]
            read += 1
    assert read >= 2
    batches = [features[rows, COLUMNS] for rows in schedule(JOB, 240)]
    with pytest.raises(Refused, match=f"in {read} batches party_0 has a row that is alone"):
        require_company("party_0", batches)
    require_company("party_0", [X[rows, COLUMNS] for rows in schedule(JOB, 240)])


@pytest.mark.parametrize("hide", [lambda x: x, lambda x: x @ np.array([[1, 2, 0], [0, 1, 5], [3, 0, 1]])])
def test_a_row_that_is_alone_in_a_combination_of_columns_is_found_too(hide):
    features = np.repeat(np.eye(3), [1, 20, 20], axis=0)
    with pytest.raises(Refused, match="in 1 batches"):
        require_company("party_0", [hide(features), hide(features[1:])])


def test_batches_dealt_anew_add_equations_until_all_labels_are_read_so_they_stay_the_same():
    """With settled weights (here a tiny step) θ stays, and every new batch is new equations for it."""

    def known(order, passes):
        equations = []
        for number in range(1, 6 * passes + 1):
            rows = order.batch(number)
            sparse = np.zeros((3, 240))
            sparse[:, rows] = X[rows, COLUMNS].T
            equations.append(sparse)
        return np.linalg.matrix_rank(np.concatenate(equations))

    assert known(RowOrder(240, 40, 3, "party_2"), 20) == 240
    assert known(FixedBatches(schedule(JOB, 240), 3, "party_2"), 20) == 3 * 6

    world = GuardedWorld(JOB, X, Y)
    world.train(3)
    assert len({tuple(sorted(update.rows.tolist())) for update in world.updates}) == 6
    assert len(world.updates) == 18


def test_a_dominator_sees_uniform_residues_whatever_the_gradient_is():
    world = trained(replace(JOB, rule="svrg"), epochs=9)
    for dominator in world.job.dominators:
        residues = [one for name, values, _ in world.decrypted if name == dominator for one in values]
        assert_uniform(residues, world.guarded[dominator].public.modulus)


def test_without_the_mask_it_would_read_the_gradient():
    world = GuardedWorld(JOB, X, Y)
    for role in world.collaborators.values():
        role._tools = replace(role._tools, entropy=Zeros())
    world.train(9)
    residues = [one for _, values, _ in world.decrypted for one in values]
    modulus = world.guarded["party_2"].public.modulus
    with pytest.raises(AssertionError):
        assert_uniform(residues, modulus)
    update, (_, values, _) = world.updates[0], world.decrypted[0]
    gradient = X[update.rows, COLUMNS].T @ update.thetas
    assert [SCALE.decode_wide(value, modulus) for value in values] == pytest.approx(gradient, abs=1e-9)


class Zeros:
    """Entropy that hides nothing."""

    def bits(self, count):
        return 0

    def octets(self, count):
        return bytes(count)

    def split(self):
        return self


def test_a_mask_serves_once():
    """Were it used twice, the difference of two residues would be the difference of two gradients: small."""
    world = trained(JOB, epochs=3)
    modulus = world.guarded["party_2"].public.modulus
    mine = [values for at, (_, values, _) in enumerate(world.decrypted) if at % 2 == 0]
    steps = [zip(one, two, strict=True) for one, two in pairwise(mine)]
    differences = [(b - a) % modulus for step in steps for a, b in step]
    assert min(min(d, modulus - d) for d in differences) > modulus >> 40
