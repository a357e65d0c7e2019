"""Wrong turns of VFB² are refused; a party may stop anywhere and go on from what it kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.errors import LocalProtocolError, NumericError, RemoteProtocolError
from common.glm.asynchronous import EpochEnd, ReferencePart, ScoreRequest
from common.glm.step_size import StepTrials
from tests.roles.vfb2_loop import Job, World, make_party, objective, pooled_replay, toy

X, Y = toy(40, 6)
RULES = pytest.mark.parametrize("rule", ["sgd", "svrg", "saga"])
NONE = np.zeros(0, dtype=np.int64)


def rows(*numbers):
    return np.array(numbers, dtype=np.int64)


def begun(**settings):
    world = World(Job(3, **settings), X, Y)
    world.freeze()
    world.measure()
    return world


@RULES
@pytest.mark.parametrize("stopped", ["party_0", "party_1", "party_2"])
def test_a_party_that_restarts_after_every_single_step_ends_with_the_same_weights(rule, stopped):
    """Party 2 and 1 are active: the keeper, the other dominator and a collaborator are all killed."""
    job = Job(3, 2, rule, batch_size=5)
    undisturbed, world = World(job, X, Y), World(job, X, Y)
    undisturbed.train(2)
    numbers = iter(range(1000, 10**9, 1000))

    def restart():
        old = world.roles[stopped]
        fresh = make_party(job, X, Y, stopped, next(numbers))
        fresh.restore(old.state())
        if stopped in job.dominators:
            for name in job.names:
                if name != stopped:
                    applied = world.roles[name].collaboration.progress.counts[stopped]
                    fresh.outbox.acknowledge(name, applied, applied)
            if old._halted:
                fresh.halt()
        world.roles[stopped] = fresh

    for action in ("freeze", "epoch", "dominated", "deliver"):
        plain = getattr(world, action)

        def wrapped(*arguments, plain=plain):
            result = plain(*arguments)
            restart()
            return result

        setattr(world, action, wrapped)
    world.train(2)
    assert np.abs(world.weights - undisturbed.weights).max() < 1e-10
    digests = {role.collaboration.progress.digest for role in world.roles.values()}
    assert digests == {undisturbed.keeper.collaboration.progress.digest}


def test_a_restart_while_derivatives_arrive_goes_on_with_the_rest():
    world = World(Job(3, rule="svrg"), X, Y)
    world.freeze()
    for request in world.keeper.ask_measure(40):
        world.aggregate(request)
        world.keeper.take_measure(request.number)
    first, second = world.keeper.reference(20)
    world.roles["party_0"].collaboration.absorb_reference(first)
    fresh = make_party(world.job, X, Y, "party_0")
    fresh.restore(world.roles["party_0"].state())
    fresh.collaboration.absorb_reference(first)
    assert fresh.collaboration.phase == "referring"
    fresh.collaboration.absorb_reference(second)
    assert fresh.collaboration.phase == "updating"
    fresh.collaboration.absorb_reference(second)


def test_a_collaborator_that_lost_updates_gets_them_again():
    world = begun(rule="saga", batch_size=2)
    kept = world.roles["party_0"].state()
    for _ in range(5):
        world.deliver_partly = world.dominated("party_2")
        for name, role in world.roles.items():
            role.apply(world.deliver_partly)
            if name != "party_2":
                world.roles["party_2"].outbox.acknowledge(name, world.deliver_partly.number, 0)
    expected = world.weights
    fresh = make_party(world.job, X, Y, "party_0")
    fresh.restore(kept)
    dominator = world.roles["party_2"]
    dominator.outbox.acknowledge("party_0", 0, 0)
    assert dominator.outbox.slowest == "party_0"
    assert dominator.outbox.in_flight == 5
    for update in dominator.outbox.after(0):
        fresh.apply(update)
    world.roles["party_0"] = fresh
    assert np.array_equal(world.weights, expected)


def test_a_dominator_takes_over_what_it_wrote_down_before_it_died():
    world = begun(rule="svrg", batch_size=2)
    kept = world.roles["party_2"].state()
    for _ in range(3):
        world.deliver(world.dominated("party_2"))
    fresh = make_party(world.job, X, Y, "party_2", first_request=5000)
    fresh.restore(kept)
    for update in world.updates:
        fresh.readopt(update)
    for name in ("party_0", "party_1"):
        fresh.outbox.acknowledge(name, 3, 3)
    world.roles["party_2"] = fresh
    for _ in range(3):
        world.deliver(world.dominated("party_2"))
    expected = pooled_replay(world.job, X, Y, world.updates)
    assert np.abs(world.weights - expected).max() < 1e-11
    assert len({tuple(update.rows) for update in world.updates}) == 6


def test_an_update_that_comes_twice_is_applied_once():
    world = begun(rule="saga")
    update = world.dominated("party_2")
    world.deliver(update)
    before = world.weights
    world.roles["party_0"].apply(update)
    assert np.array_equal(world.weights, before)


def test_no_more_updates_are_in_flight_than_agreed():
    world = begun(rule="sgd", max_staleness=3)
    dominator = world.roles["party_2"]
    update = world.dominated("party_2")
    for role in world.roles.values():
        role.apply(update)
    dominator.outbox.acknowledge("party_0", 1, 0)
    opened = [dominator.pick(), dominator.pick()]
    assert not dominator.may_pick()
    with pytest.raises(LocalProtocolError, match="2 requests are open, 1 updates in flight"):
        dominator.pick()
    dominator.outbox.acknowledge("party_1", 1, 0)
    assert dominator.may_pick()
    dominator.abandon(opened[0])
    assert np.array_equal(dominator.pick().rows, opened[0].rows)
    far = replace(update, number=5)
    with pytest.raises(RemoteProtocolError, match="more than 3 are in flight"):
        world.roles["party_0"].apply(far)


def test_scores_that_others_have_overtaken_are_not_fresh():
    world = begun(rule="sgd", active=2, max_staleness=2)
    slow = world.roles["party_2"]
    request = slow.pick()
    world.aggregate(request)
    for _ in range(4):
        assert slow.fresh(request)
        world.deliver(world.dominated("party_1"))
    world.deliver(world.dominated("party_1"))
    assert not slow.fresh(request)
    slow.abandon(request)
    assert np.array_equal(slow.pick().rows, request.rows)


def test_a_halted_dominator_begins_nothing_and_picks_given_up_rows_again():
    world = begun(rule="svrg")
    dominator = world.roles["party_2"]
    request = dominator.pick()
    assert dominator.halt() == 0
    with pytest.raises(LocalProtocolError, match="no update may be begun"):
        dominator.pick()
    with pytest.raises(LocalProtocolError, match="not open"):
        dominator.dominate(request)
    dominator.resume()
    assert np.array_equal(dominator.pick().rows, request.rows)


def test_before_the_start_and_after_the_end_nothing_moves():
    world = World(Job(3, rule="sgd"), X, Y)
    assert not world.roles["party_2"].may_pick()
    role = world.roles["party_0"]
    with pytest.raises(RemoteProtocolError, match="phase 'start'"):
        role.contribute(ScoreRequest("party_2", 1, "scores", 1, rows(0)))
    with pytest.raises(RemoteProtocolError, match="has not begun"):
        role.collaboration.finish(EpochEnd(0, {}))
    world = World(Job(3, rule="sgd"), X, Y)
    role = world.roles["party_0"]
    world.train(1)
    update = replace(world.updates[-1], number=len(world.updates) + 1)
    with pytest.raises(LocalProtocolError, match="phase 'finished'"):
        role.apply(update)
    with pytest.raises(RemoteProtocolError, match="phase 'finished'"):
        role.contribute(ScoreRequest("party_2", 10**6, "scores", 2, rows(0)))
    with pytest.raises(RemoteProtocolError, match="phase 'finished'"):
        role.collaboration.freeze(EpochEnd(2, {}))


def test_svrg_updates_wait_for_the_derivatives_of_their_own_snapshot():
    world = begun(rule="svrg")
    early = world.dominated("party_2")
    stale = replace(early, number=2)
    world.deliver(early)
    world.freeze()
    role = world.roles["party_0"].collaboration
    assert not role.may_apply(replace(early, epoch=2))
    with pytest.raises(LocalProtocolError, match="phase 'referring'"):
        role.apply(replace(early, number=2, epoch=2))
    with pytest.raises(RemoteProtocolError, match="epoch 1 came in epoch 2"):
        role.apply(stale)
    with pytest.raises(RemoteProtocolError, match="derivatives of rows 7"):
        role.absorb_reference(ReferencePart(1, 7, np.zeros(2)))
    with pytest.raises(RemoteProtocolError, match="at the end of epoch 0"):
        role.absorb_reference(ReferencePart(0, 0, np.zeros(2)))
    with pytest.raises(RemoteProtocolError, match="finite derivatives"):
        role.absorb_reference(ReferencePart(1, 0, np.array([np.nan])))
    world.measure()
    assert role.may_apply(replace(early, number=2, epoch=2))


def test_an_epoch_ends_only_where_its_cut_is():
    world = begun(rule="svrg")
    role = world.roles["party_0"].collaboration
    with pytest.raises(LocalProtocolError, match="updates of its cut are missing"):
        role.freeze(EpochEnd(1, {"party_2": 1}))
    with pytest.raises(RemoteProtocolError, match="epoch 3 ended in epoch 1"):
        role.freeze(EpochEnd(3, {"party_2": 0}))
    world.deliver(world.dominated("party_2"))
    with pytest.raises(RemoteProtocolError, match="came before its snapshot"):
        role.freeze(EpochEnd(1, {"party_2": 0}))
    with pytest.raises(RemoteProtocolError, match="models differ"):
        role.finish(EpochEnd(1, {"party_2": 0}))
    with pytest.raises(LocalProtocolError, match="last cut are missing"):
        role.finish(EpochEnd(1, {"party_2": 2}))
    frozen = role.state().frozen
    role.freeze(EpochEnd(0, {}))
    assert np.array_equal(role.state().frozen, frozen)


def test_saga_freezes_while_updates_go_on():
    world = begun(rule="saga")
    world.deliver(world.dominated("party_2"))
    cut = dict(world.keeper.collaboration.progress.counts)
    world.deliver(world.dominated("party_2"))
    for role in world.roles.values():
        role.collaboration.freeze(EpochEnd(1, cut))
    frozen = world.weights
    world.deliver(world.dominated("party_2"))
    assert world.measure() == pytest.approx(objective(world.job, X, Y, frozen), abs=1e-11)


def test_only_active_parties_dominate_and_only_in_epochs_that_can_be():
    world = begun(rule="sgd")
    update = world.dominated("party_2")
    with pytest.raises(RemoteProtocolError, match="'party_1' does not dominate"):
        world.roles["party_0"].apply(replace(update, dominator="party_1"))
    with pytest.raises(RemoteProtocolError, match="epoch 3 came in epoch 1"):
        world.roles["party_0"].apply(replace(update, epoch=3))
    with pytest.raises(RemoteProtocolError, match="not a root"):
        world.roles["party_0"].contribute(ScoreRequest("party_1", 1, "scores", 1, rows(0)))


def test_frozen_blocks_answer_for_their_own_epoch_only():
    world = begun(rule="saga")
    with pytest.raises(RemoteProtocolError, match="end of epoch 1 are not frozen"):
        world.roles["party_0"].contribute(ScoreRequest("party_2", 900, "frozen_penalty", 1, NONE))
    with pytest.raises(LocalProtocolError, match="no measure"):
        make_party(world.job, X, Y, "party_2").objective()
    world.keeper.ask_measure(40)
    with pytest.raises(LocalProtocolError, match="2 sums of the objective are missing"):
        world.keeper.objective()


def test_scores_out_of_range_stop_the_party_before_anything_leaves():
    world = begun(rule="sgd")
    world.roles["party_0"].weights[:] = 1e9
    with pytest.raises(NumericError, match="leave the range of secure sums"):
        world.aggregate(world.roles["party_2"].pick())


def test_an_update_that_is_not_finite_names_the_feature_and_moves_nothing():
    world = begun(rule="sgd")
    update = replace(world.dominated("party_2"), thetas=np.array([1e300]))
    world.roles["party_0"].collaboration.block.features._matrix[update.rows, 1] = 1e300
    with pytest.raises(NumericError, match="feature 'x1'"):
        world.roles["party_0"].apply(update)
    assert not world.roles["party_0"].weights.any()


@RULES
def test_the_step_size_is_chosen_by_short_runs_from_the_start(rule):
    world = World(Job(3, 2, rule, loss="squared", batch_size=2), X * 3, Y)
    world.freeze()
    trials = StepTrials(world.measure(), (1e4, 1e-1, 1e-7))
    for step in trials.remaining:
        world.start_over(step)
        try:
            for _ in range(20):  # the keeper dominates alone
                world.deliver(world.dominated("party_1"))
            world.freeze()
            trials.record(step, world.measure())
        except NumericError:
            trials.record(step, float("nan"))
    assert trials.chosen() == 1e-1
    assert "learning_rate: auto took 0.1" in trials.describe()
    world.start_over(trials.chosen())
    assert not world.weights.any()
    world.updates.clear()
    world.epoch()
    expected = pooled_replay(replace(world.job, step=0.1), X * 3, Y, world.updates)
    assert np.abs(world.weights - expected).max() < 1e-10
    world.freeze()
    world.measure()
    world.deliver(world.dominated("party_1"))
    world.freeze()
    with pytest.raises(RemoteProtocolError, match="cannot be tried in epoch 3"):
        world.roles["party_0"].collaboration.start_over(0.5)


@RULES
def test_a_party_that_restarts_before_its_first_update_can_still_start_over(rule):
    world = begun(rule=rule)
    fresh = make_party(world.job, X, Y, "party_0")
    fresh.restore(world.roles["party_0"].state())
    fresh.collaboration.start_over(0.01)
    assert fresh.collaboration.schedule.first == 0.01
    world.deliver(world.dominated("party_2"))
    late = make_party(world.job, X, Y, "party_0")
    late.restore(world.roles["party_0"].state())
    with pytest.raises(RemoteProtocolError, match="cannot be tried"):
        late.collaboration.start_over(0.01)


@pytest.mark.parametrize("party", ["party_0", "party_2"])  # a collaborator, and the dominator itself
def test_scores_out_of_range_are_told_with_party_and_feature(party):
    world = begun(rule="sgd")
    request = world.keeper.pick()
    block = world.roles[party].collaboration.block
    block.weights[:] = 1.0, 1e12  # of two columns
    with pytest.raises(NumericError, match=f"scores of {party} leave .* feature {block.names[1]!r}") as told:
        world.roles[party].contribute(request)
    assert "standardize" in told.value.advice
