"""Encrypted θ trains the model that plain θ trains, and every wrong turn is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.crypto.cipher import CipherVector
from common.errors import LocalProtocolError, Refused, RemoteProtocolError
from common.glm.asynchronous import Update
from tests.roles.vfb2_guarded_loop import GuardedWorld
from tests.roles.vfb2_loop import Job, best_objective, objective, pooled_replay, toy

X, Y = toy(240, 8)
SMALL = Job(3, 1, "sgd", batch_size=40)


def unseen(update):
    return replace(update, thetas=np.zeros(0))


@pytest.mark.parametrize(("rule", "active"), [("sgd", 1), ("sgd", 2), ("svrg", 1), ("saga", 1)])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_the_model_is_that_of_plain_training_to_fixed_point_rounding(rule, active, loss):
    job = Job(3, active, rule, loss, batch_size=40, step=0.2)
    world = GuardedWorld(job, X, Y)
    world.train(3)
    assert np.abs(world.weights - pooled_replay(job, X, Y, world.updates)).max() < 1e-9
    assert len({role.collaboration.progress.digest for role in world.roles.values()}) == 1


def test_svrg_comes_to_the_pooled_optimum():
    job = replace(SMALL, rule="svrg", l2=0.1, step=2.0)
    world = GuardedWorld(job, X, Y)
    world.train(12)
    best = best_objective(job, X, Y)
    assert objective(job, X, Y, world.weights) - best < 1e-6 * best


def begun(**settings):
    world = GuardedWorld(replace(SMALL, **settings), X, Y)
    world.freeze()
    world.measure()
    return world, world.dominated("party_2")


def ciphertexts(world, update):
    return world.guarded["party_2"].sealed(update.number).opened()


def test_asked_again_a_collaborator_repeats_its_words_and_a_dominator_its_answer():
    world, update = begun()
    role, guarded = world.collaborators["party_0"], world.guarded["party_2"]
    first = role.masked(unseen(update), ciphertexts(world, update))
    again = role.masked(unseen(update), ciphertexts(world, update))
    assert first.to_bytes() == again.to_bytes()
    assert guarded.decrypt("party_0", 1, first.opened()) == guarded.decrypt("party_0", 1, first.opened())


def test_a_second_vector_of_an_update_is_not_decrypted_until_its_sender_has_lost_its_masks():
    world, update = begun()
    guarded, vector = world.guarded["party_2"], ciphertexts(world, update)
    columns = len(world.roles["party_0"].weights)
    guarded.decrypt("party_0", 1, vector[:columns])
    with pytest.raises(Refused, match="decrypted once"):
        guarded.decrypt("party_0", 1, vector[columns : 2 * columns])
    guarded.renew("party_0")
    guarded.decrypt("party_0", 1, vector[columns : 2 * columns])


def test_a_party_that_keeps_coming_back_gets_two_vectors_of_an_update_and_no_third():
    world, update = begun()
    guarded, vector = world.guarded["party_2"], ciphertexts(world, update)
    columns = len(world.roles["party_0"].weights)
    first = guarded.decrypt("party_0", 1, vector[:columns])
    guarded.renew("party_0")
    guarded.decrypt("party_0", 1, vector[columns : 2 * columns])
    guarded.renew("party_0")
    with pytest.raises(Refused, match="decrypted once"):
        guarded.decrypt("party_0", 1, vector[2 * columns : 3 * columns])
    assert guarded.decrypt("party_0", 1, vector[:columns]) == first


@pytest.mark.parametrize("length", [0, 1, 40])
def test_only_vectors_of_the_declared_length_are_decrypted(length):
    world, update = begun()
    with pytest.raises(Refused, match="declared vectors of length"):
        world.guarded["party_2"].decrypt("party_0", 1, ciphertexts(world, update)[:length])


def test_nothing_is_decrypted_for_a_stranger_or_of_an_update_that_is_not_on_its_way():
    world, update = begun()
    guarded, vector = world.guarded["party_2"], ciphertexts(world, update)[:3]
    with pytest.raises(Refused, match="declared vectors of length None"):
        guarded.decrypt("party_9", 1, vector)
    with pytest.raises(Refused, match="update 2 is not on its way"):
        guarded.decrypt("party_0", 2, vector)
    world.deliver(update)
    with pytest.raises(Refused, match="update 1 is not on its way"):
        guarded.decrypt("party_0", 1, vector)
    with pytest.raises(Refused, match="no snapshot at the end of epoch 0"):
        guarded.decrypt_reference("party_0", 0, vector)


def test_a_collaborator_refuses_what_does_not_fit_its_rows_or_its_turn():
    world, update = begun(max_staleness=1)
    role, vector = world.collaborators["party_0"], ciphertexts(world, update)
    with pytest.raises(RemoteProtocolError, match="39 ciphertexts came for a batch of 40"):
        role.masked(unseen(update), vector[:39])
    with pytest.raises(RemoteProtocolError, match="not among 240"):
        role.masked(replace(unseen(update), rows=update.rows + 230), vector)
    with pytest.raises(RemoteProtocolError, match="shown no public key"):
        role.masked(replace(unseen(update), dominator="party_1"), vector)
    with pytest.raises(RemoteProtocolError, match="no masked gradient of update 1"):
        role.apply(unseen(update), (1, 2, 3))
    role.masked(unseen(update), vector)
    with pytest.raises(RemoteProtocolError, match="more than 1 updates wait"):
        role.masked(replace(unseen(update), number=2), vector)
    with pytest.raises(RemoteProtocolError, match="returned 2 values for 3"):
        role.apply(unseen(update), (1, 2))


def test_svrg_takes_the_snapshot_without_gaps_and_decrypts_it_when_it_is_whole():
    world = GuardedWorld(replace(SMALL, rule="svrg"), X, Y)
    world.freeze()
    for request in world.keeper.ask_measure(240):
        world.aggregate(request)
        world.keeper.take_measure(request.number)
    role, whole = world.collaborators["party_0"], world.guarded["party_2"].reference().opened()
    with pytest.raises(RemoteProtocolError, match="all 240 rows must come"):
        role.masked_reference()
    role.absorb_reference("party_2", 0, 0, whole[:100])
    with pytest.raises(RemoteProtocolError, match="came after 100"):
        role.absorb_reference("party_2", 0, 101, whole[101:])
    with pytest.raises(RemoteProtocolError, match="all 240 rows must come"):
        role.masked_reference()
    role.absorb_reference("party_2", 0, 60, whole[60:])  # overlaps, as after a lost answer
    guarded, masked = world.guarded["party_2"], role.masked_reference().opened()
    role.refer(guarded.decrypt_reference("party_0", 0, masked))
    thetas = -0.5 * Y
    columns = X[:, :3]
    mean = world.roles["party_0"].collaboration.block.rule.tables()["mean"]
    assert mean == pytest.approx(columns.T @ thetas / 240, abs=1e-9)


def test_a_new_key_after_a_restart_makes_what_was_on_its_way_void():
    world, update = begun()
    role, vector = world.collaborators["party_0"], ciphertexts(world, update)
    role.masked(unseen(update), vector)
    other = CipherVector.of(world.guarded["party_2"].public, [2] * 40).key
    role.use_key("party_2", replace(other, noise_generator=other.noise_generator + 1))
    with pytest.raises(RemoteProtocolError, match="no masked gradient of update 1"):
        role.apply(unseen(update), (1, 2, 3))


@pytest.mark.parametrize("rule", ["sgd", "svrg", "saga"])
def test_a_dominator_takes_its_updates_from_its_log_and_trains_on_with_another_key(rule):
    job = replace(SMALL, rule=rule)
    whole, broken = GuardedWorld(job, X, Y), GuardedWorld(job, X, Y)
    for world in (whole, broken):
        world.freeze()
        world.measure()
    states, log = {name: role.state() for name, role in broken.roles.items()}, []
    for _ in range(4):
        whole.deliver(whole.dominated("party_2"))
        log.append(broken.dominated("party_2"))
        broken.deliver(log[-1])
    again = GuardedWorld(job, X, Y)
    for name, role in again.roles.items():
        role.restore(states[name])
    for update in log:
        again.guarded["party_2"].readopt(update)
        for name in ("party_0", "party_1"):
            again.send(name, update)
    assert np.abs(again.weights - whole.weights).max() < 1e-9


def test_a_plain_update_whose_fingerprint_would_show_theta_is_refused():
    world, update = begun()
    plain = Update(update.dominator, 2, 1, 9, update.rows, update.thetas)
    with pytest.raises(LocalProtocolError, match="fingerprints"):
        world.guarded["party_2"].readopt(plain)
    changed = replace(update, thetas=update.thetas + 1)
    assert changed.fingerprint() == update.fingerprint()
    assert replace(plain, thetas=plain.thetas + 1).fingerprint() != plain.fingerprint()
