"""What a party has applied, what a dominator has in flight, and when an epoch ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import LocalProtocolError, NumericError, RemoteProtocolError
from common.glm.asynchronous import Progress, ScoreRequest, Update
from common.glm.epochs import EpochKeeper
from common.glm.outbox import Outbox


def update(number, dominator="b", theta=0.5):
    rows = np.array([number % 7], dtype=np.int64)
    return Update(dominator, number, 1, number, rows, np.array([theta]))


def applied(progress, *updates):
    for each in updates:
        assert progress.claim(each)
        progress.settle(each)


@given(order=st.permutations([(name, number) for name in ("b1", "b2") for number in (1, 2, 3, 4)]))
def test_the_digest_knows_the_updates_and_not_their_order(order):
    one, other = Progress(["b1", "b2"], 4), Progress(["b1", "b2"], 4)
    applied(one, *(update(number, name) for name, number in order))
    applied(other, *(update(number, name) for name in ("b1", "b2") for number in (1, 2, 3, 4)))
    assert one.digest == other.digest
    assert one.counts == {"b1": 4, "b2": 4}
    assert one.rows == 8
    assert one.equals({"b1": 4, "b2": 4})


@pytest.mark.parametrize(
    "change",
    [{"dominator": "b2"}, {"number": 2}, {"epoch": 2}, {"rows": np.array([3])}, {"thetas": np.array([0.25])}],
)
def test_the_digest_shows_any_difference(change):
    one, other = Progress(["b", "b2"], 4), Progress(["b", "b2"], 4)
    applied(one, update(1))
    applied(other, replace(update(1), **change))
    assert one.digest != other.digest


def test_updates_beyond_a_gap_count_when_it_closes():
    progress = Progress(["b"], 4)
    applied(progress, update(2), update(4))
    assert progress.counts == {"b": 0}
    assert not progress.covers({"b": 1})
    assert not progress.equals({})
    applied(progress, update(1))
    assert progress.counts == {"b": 2}
    restored = Progress(["b"], 4)
    restored.restore(progress.state())
    assert not restored.claim(update(4))
    applied(restored, update(3))
    assert restored.counts == {"b": 4}


def test_an_update_belongs_to_one_thread():
    progress = Progress(["b"], 1000)
    wins = []

    def work(_):
        for number in range(1, 301):
            if progress.claim(update(number)):
                progress.settle(update(number))
                wins.append(number)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert sorted(wins) == list(range(1, 301))
    assert progress.counts == {"b": 300}


def test_the_state_is_not_taken_while_an_update_is_being_applied():
    progress = Progress(["b"], 4)
    assert progress.claim(update(1))
    with pytest.raises(LocalProtocolError, match="being applied"):
        progress.state()
    progress.unclaim(update(1))
    assert progress.state().counts == {"b": 0}


@pytest.mark.parametrize("number", [0, -1, 4])
def test_numbers_that_cannot_be_are_refused(number):
    with pytest.raises(RemoteProtocolError, match="more than 3 are in flight"):
        Progress(["b"], 3).claim(update(number))


def test_staleness_is_what_was_applied_between_the_scores_and_the_update():
    progress = Progress(["b", "b2"], 8)
    progress.note_read("b", 1)
    applied(progress, *(update(number, "b2") for number in (1, 2, 3)))
    applied(progress, update(1))
    progress.note_read("b", 2)
    applied(progress, update(2))
    assert progress.staleness == {3: 1, 0: 1}
    for number in range(100, 400):
        progress.note_read("b", number)
    assert len(progress._read_at) <= 2 * 8 * 2


def test_the_slowest_party_holds_the_dominator_back():
    outbox = Outbox(["a1", "a2"], 2)
    outbox.put(update(1))
    assert outbox.room(0)
    assert not outbox.room(1)
    outbox.put(update(2))
    outbox.acknowledge("a1", 2, 2)
    assert outbox.slowest == "a2"
    assert not outbox.room(0)
    outbox.acknowledge("a2", 1, 0)
    assert outbox.room(0)
    assert [each.number for each in outbox.after(0)] == [1, 2]


def test_updates_are_kept_until_every_disk_shows_them():
    outbox = Outbox(["a1", "a2"], 9)
    for number in (1, 2, 3):
        outbox.put(update(number))
    outbox.acknowledge("a1", 3, 3)
    outbox.acknowledge("a2", 3, 2)
    assert [each.number for each in outbox.after(2)] == [3]
    with pytest.raises(RemoteProtocolError, match="were acknowledged"):
        outbox.after(1)
    outbox.acknowledge("a2", 2, 2)  # it was killed and stands where its disk does
    with pytest.raises(RemoteProtocolError, match="has lost updates"):
        outbox.acknowledge("a2", 1, 1)
    restored = Outbox(["a1", "a2"], 9)
    restored.restore(outbox.state())
    assert restored.in_flight == 1
    assert [each.number for each in restored.after(2)] == [3]


@pytest.mark.parametrize(
    ("party", "numbers"), [("a1", (2, 0)), ("a1", (0, 1)), ("a1", (1, -1)), ("c", (0, 0))]
)
def test_acknowledgements_that_cannot_be_true_are_refused(party, numbers):
    outbox = Outbox(["a1", "a2"], 2)
    outbox.put(update(1))
    with pytest.raises(RemoteProtocolError, match="cannot have got"):
        outbox.acknowledge(party, *numbers)


def test_updates_leave_in_their_order_and_somebody_must_get_them():
    with pytest.raises(LocalProtocolError, match="cannot follow"):
        Outbox(["a1"], 2).put(update(2))
    for collaborators, bound in ((["a1"], 0), ([], 2)):
        with pytest.raises(LocalProtocolError, match="needs collaborators"):
            Outbox(collaborators, bound)


def test_a_request_for_penalties_asks_for_one_number():
    none = np.zeros(0, dtype=np.int64)
    assert ScoreRequest("b", 1, "frozen_penalty", 0, none).length == 1
    assert ScoreRequest("b", 1, "scores", 0, none).length == 0


def test_epochs_are_counted_in_rows_of_all_dominators():
    keeper = EpochKeeper(100, 3, None)
    assert not keeper.due(1, 99)
    assert keeper.due(1, 100)
    assert not keeper.due(2, 199)


def test_training_ends_after_its_epochs_or_when_the_objective_settles():
    keeper = EpochKeeper(10, 3, 1e-3)
    assert not keeper.judge(0, 1.0).last
    assert not keeper.judge(1, 0.5).last
    verdict = keeper.judge(2, 0.4999)
    assert (verdict.last, verdict.converged) == (True, True)
    assert "changed by less than 0.001 of itself in epoch 2" in verdict.because
    short = EpochKeeper(10, 1, None)
    short.judge(0, 1.0)
    verdict = short.judge(1, 1.0)
    assert (verdict.last, verdict.converged, verdict.because) == (True, False, "1 epochs were run")


def test_an_objective_must_be_a_number_and_come_in_order():
    keeper = EpochKeeper(10, 1, None)
    with pytest.raises(LocalProtocolError, match="0 is the next"):
        keeper.judge(1, 1.0)
    with pytest.raises(NumericError, match="not finite"):
        keeper.judge(0, float("nan"))


def test_a_party_that_lost_updates_in_a_crash_gets_them_again_beside_those_in_flight():
    progress = Progress(["b"], 3)
    state = progress.state()
    applied(progress, update(1), update(2))
    progress.restore(state)
    assert progress.claim(update(5))
    with pytest.raises(RemoteProtocolError, match="are in flight"):
        progress.claim(update(5000))
