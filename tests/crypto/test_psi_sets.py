"""Sets of blinded ids over an executor."""

from __future__ import annotations

import numpy as np
import pytest

from common.crypto import psi
from common.crypto.entropy import SeededEntropy
from common.crypto.psi import (
    blind_ids,
    blind_points,
    common_positions,
    count_common,
    parse_points,
    sorting_order,
)
from common.crypto.psi_curve import SecretScalar, hash_to_curve, multiply, split_points
from common.errors import RemoteProtocolError
from common.runtime.compute import InProcessExecutor, open_executor

SCALAR = SecretScalar.draw(SeededEntropy(b"set"))


def quiet(done: int) -> None:
    """Nobody watches."""


def points_of(*numbers: int) -> psi.Points:
    return parse_points(b"".join(number.to_bytes(32, "big") for number in numbers))


def test_blinding_keeps_the_order_and_reports_every_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psi, "_CHUNK", 7)
    ids = [f"id {number}" for number in range(40)]
    done: list[int] = []
    points = blind_ids(ids, SCALAR, InProcessExecutor(), done.append)
    assert points.tobytes() == multiply([hash_to_curve(one) for one in ids], SCALAR)
    assert sum(done) == 40
    assert len(done) == 6


def test_processes_make_the_same_points() -> None:
    ids = [str(number) for number in range(5000)]
    with open_executor(2) as executor:
        points = blind_ids(ids, SCALAR, executor, quiet)
        twice = blind_points(points, SCALAR, executor, quiet)
    assert points[4999:].tobytes() == multiply([hash_to_curve("4999")], SCALAR)
    assert twice[:3].tobytes() == multiply(split_points(points[:3].tobytes()), SCALAR)


def test_a_bad_point_anywhere_stops_the_work() -> None:
    good = multiply([hash_to_curve("x")], SCALAR)
    with pytest.raises(RemoteProtocolError):
        blind_points(parse_points(good + b"\xff" * 32), SCALAR, InProcessExecutor(), quiet)


def test_half_a_point_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="32 bytes each"):
        parse_points(b"\x01" * 33)


def test_a_point_that_comes_twice_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="twice"):
        sorting_order(points_of(5, 7, 5))


def test_common_points_are_found_in_all_sets_in_one_order() -> None:
    sets = [points_of(9, 4, 1 << 200, 2), points_of(2, 1 << 200, 8, 9), points_of(1 << 200, 9, 3)]
    positions = common_positions(sets)
    shared = [points[at] for points, at in zip(sets, positions, strict=True)]
    assert [one.tobytes() for one in shared] == [points_of(9, 1 << 200).tobytes()] * 3


def test_points_that_end_in_zero_bytes_stay_apart() -> None:
    # NumPy pads byte strings with zeros, so a point's own zeros must not get lost or match a shorter one.
    left, right = points_of(1 << 255, 1 << 248), points_of(1 << 248, 1 << 240)
    assert [at.tolist() for at in common_positions([left, right])] == [[1], [0]]
    assert left.tobytes()[:32] == (1 << 255).to_bytes(32, "big")


@pytest.mark.parametrize("empty", [[points_of(), points_of(3)], [points_of(3), points_of()]])
def test_an_empty_set_has_nothing_in_common(empty: list[psi.Points]) -> None:
    assert [len(at) for at in common_positions(empty)] == [0, 0]
    assert count_common(*empty) == 0


def test_counting_common_points_is_the_size_of_the_intersection() -> None:
    generator = np.random.default_rng(3)
    left, right = (generator.choice(500, 200, replace=False).tolist() for _ in range(2))
    assert count_common(points_of(*left), points_of(*right)) == len(set(left) & set(right))
