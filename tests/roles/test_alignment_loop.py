"""Entity alignment as a loop over the roles, without a network."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from common.crypto.entropy import SeededEntropy
from common.crypto.psi_curve import SecretScalar
from common.errors import Refused, RemoteProtocolError
from common.runtime.compute import InProcessExecutor
from common.runtime.guest.align import PassiveAlignment
from common.types import Ints
from party_b.align import ActiveAlignment, ring


def quiet(done: int) -> None:
    """Nobody watches."""


def scalar(seed: int) -> SecretScalar:
    return SecretScalar.draw(SeededEntropy(bytes([seed])))


def passive(ids: Sequence[str], seed: int = 1, at_least: int = 1) -> PassiveAlignment:
    return PassiveAlignment(ids, scalar(seed), InProcessExecutor(), at_least)


def align(own: Sequence[str], others: dict[str, Sequence[str]], at_least: int = 1) -> dict[str, Ints]:
    """The whole protocol, as party_b/alignment.py conducts it; returns each party's common rows."""
    names = list(others)
    parties = {name: passive(ids, seed, at_least) for seed, (name, ids) in enumerate(others.items(), start=1)}
    active = ActiveAlignment("b", own, scalar(99), InProcessExecutor())
    for name in names:
        points = parties[name].blind_own(quiet)
        for hop in ring(names, name):
            points = parties[hop].blind_other(name, points, quiet)
        active.finish(name, points, quiet)
    points = active.blind_own(quiet)
    for hop in ring(names, "b"):
        points = parties[hop].blind_other("b", points, quiet)
    active.take_back(points)
    rows: dict[str, Ints] = {}
    for owner, positions in active.common().items():
        for hop in reversed(ring(names, owner)):
            positions = parties[hop].reveal(owner, positions)
        rows[owner] = active.own_rows(positions) if owner == "b" else parties[owner].set_common(positions)
    return rows


def make_ids(count: int, start: int, seed: int) -> list[str]:
    ids = [f"{number:06d}" for number in range(start, start + count)]
    random.Random(seed).shuffle(ids)
    return ids


@pytest.mark.parametrize("parties", [1, 2, 3, 4])
def test_all_parties_get_the_same_common_ids_in_the_same_order(parties: int) -> None:
    own = make_ids(60, 0, 7)
    others = {f"a{at}": make_ids(40 + at, 10 + 5 * at, at) for at in range(parties)}
    rows = align(own, others)
    expected = set(own).intersection(*others.values())
    tables = {"b": own, **others}
    lists = [[tables[name][row] for row in positions] for name, positions in rows.items()]
    assert set(lists[0]) == expected
    assert all(ids == lists[0] for ids in lists)


def test_the_common_order_is_that_of_the_ids_whatever_the_scalars_are() -> None:
    ids = make_ids(50, 0, 1)
    rows = align(ids, {"a": make_ids(50, 10, 2)})["b"]
    assert [ids[row] for row in rows] == [f"{number:06d}" for number in range(10, 50)]


def test_positions_travel_in_an_order_that_says_nothing() -> None:
    ids = [f"{number:06d}" for number in range(200)]
    party = passive(ids)
    active = ActiveAlignment("b", ids, scalar(2), InProcessExecutor())
    active.finish("a", party.blind_own(quiet), quiet)
    active.take_back(party.blind_other("b", active.blind_own(quiet), quiet))
    assert abs(int(np.sign(np.diff(active.common()["a"])).sum())) < 60


def test_no_two_sets_reach_a_passive_party_under_the_same_scalars() -> None:
    names = ["a1", "a2", "a3", "a4"]
    for party in names:
        seen = []
        for owner in (*names, "b"):
            path = (owner, *ring(names, owner))
            if owner != party:
                seen.append(frozenset(path[: path.index(party)]))
        assert len(set(seen)) == len(seen)


def test_ids_that_only_differ_in_a_zero_stay_apart() -> None:
    rows = align(["001", "1", "1.0"], {"a": ["1.0", "01"]})
    assert [["1.0", "01"][row] for row in rows["a"]] == ["1.0"]


def test_below_the_minimum_no_positions_are_led_back() -> None:
    ids = make_ids(30, 0, 1)
    with pytest.raises(Refused, match="10 common ids are fewer than the 11"):
        align(ids, {"a": make_ids(30, 20, 2)}, at_least=11)


def test_rows_are_not_set_below_the_minimum_either() -> None:
    party = passive(make_ids(30, 0, 1), at_least=5)
    party.blind_own(quiet)
    with pytest.raises(Refused, match="fewer than the 5"):
        party.set_common(np.arange(4))


def test_a_second_set_of_one_owner_is_refused_and_a_repeated_one_is_not() -> None:
    points = ActiveAlignment("b", ["x", "y"], scalar(2), InProcessExecutor()).blind_own(quiet)
    more = ActiveAlignment("b", ["x", "z"], scalar(2), InProcessExecutor()).blind_own(quiet)
    party = passive(["x"])
    first = party.blind_other("b", points, quiet)
    assert (party.blind_other("b", points, quiet) == first).all()
    with pytest.raises(RemoteProtocolError, match="second set of b's ids"):
        party.blind_other("b", more, quiet)


def test_other_common_positions_are_refused_and_repeated_ones_are_not() -> None:
    party = passive(["x", "y", "z"])
    party.blind_own(quiet)
    rows = party.set_common(np.array([2, 0]))
    assert (party.set_common(np.array([2, 0])) == rows).all()
    with pytest.raises(RemoteProtocolError, match="named before"):
        party.set_common(np.array([1, 0]))
    party.blind_other(
        "b", ActiveAlignment("b", ["x", "y"], scalar(2), InProcessExecutor()).blind_own(quiet), quiet
    )
    party.reveal("b", np.array([0]))
    with pytest.raises(RemoteProtocolError, match="named before"):
        party.reveal("b", np.array([1]))


@pytest.mark.parametrize("positions", [[0, 3], [-1], [1, 1]])
def test_positions_must_be_distinct_and_within_the_set(positions: list[int]) -> None:
    party = passive(["x", "y", "z"])
    party.blind_own(quiet)
    with pytest.raises(RemoteProtocolError):
        party.set_common(np.array(positions))


def test_nothing_is_revealed_of_a_set_that_never_came() -> None:
    with pytest.raises(RemoteProtocolError, match="were not blinded here"):
        passive(["x"]).reveal("b", np.array([0]))


def test_a_set_that_comes_back_smaller_is_refused() -> None:
    active = ActiveAlignment("b", ["x", "y"], scalar(2), InProcessExecutor())
    points = active.blind_own(quiet)
    with pytest.raises(RemoteProtocolError, match="another number"):
        active.take_back(points[:1])


def test_a_retry_of_the_own_ids_brings_the_same_points() -> None:
    party = passive(["x", "y", "z"])
    assert (party.blind_own(quiet) == party.blind_own(quiet)).all()
