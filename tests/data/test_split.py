"""Splits and batches: a partition, and the same one everywhere."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.data.split import BatchSchedule, split_rows
from common.errors import DataError, LocalProtocolError

GOLDEN_TEST_ROWS = [1, 4, 9, 10, 16, 17]
GOLDEN_BATCHES = [[2, 3, 5], [0, 6, 8], [1, 4, 7, 9]] * 2

seeds = st.integers(-(2**63), 2**63)


@given(st.integers(1, 300), st.integers(0, 99), seeds)
def test_a_split_is_a_partition_of_the_declared_sizes(rows: int, percent: int, seed: int) -> None:
    tests = math.ceil(Fraction(percent, 100) * rows)
    if tests == rows:
        with pytest.raises(DataError, match="none of"):
            split_rows(rows, percent / 100, seed)
        return
    train, test = split_rows(rows, percent / 100, seed)
    assert len(test) == tests
    assert sorted([*train, *test]) == list(range(rows))
    assert list(train) == sorted(train)
    assert list(test) == sorted(test)


def test_the_same_seed_gives_the_same_split_and_another_seed_another() -> None:
    first, again, other = (split_rows(442, 0.3, seed)[1].tolist() for seed in (7, 7, 8))
    assert first == again != other
    assert len(first) == 133


def test_a_split_is_the_documented_hash_order() -> None:
    def key(row: int) -> bytes:
        digest = hashlib.sha256(f"colonnade split v1|7|0|{row // 4}".encode()).digest()
        return digest[row % 4 * 8 :][:8]

    first = sorted(range(50), key=key)[:15]
    assert split_rows(50, 0.3, 7)[1].tolist() == sorted(first)


def test_a_split_never_changes_with_platform_or_numpy() -> None:
    assert split_rows(20, 0.3, 7)[1].tolist() == GOLDEN_TEST_ROWS
    schedule = BatchSchedule(10, 3, 7)
    assert [schedule.rows_of(step).tolist() for step in range(1, 7)] == GOLDEN_BATCHES


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5, math.nan])
def test_a_fraction_outside_its_range_is_refused(fraction: float) -> None:
    with pytest.raises(DataError, match="test_fraction"):
        split_rows(10, fraction, 0)


@given(st.integers(1, 200), st.integers(1, 250), seeds, st.integers(0, 3))
def test_every_epoch_deals_all_rows_into_batches_of_nearly_one_size(
    rows: int, batch_size: int, seed: int, epoch: int
) -> None:
    schedule = BatchSchedule(rows, batch_size, seed)
    assert schedule.batches == max(1, rows // batch_size)
    dealt = [schedule.rows_of(epoch * schedule.batches + at + 1) for at in range(schedule.batches)]
    assert sorted(np.concatenate(dealt)) == list(range(rows))
    sizes = {len(batch) for batch in dealt}
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) == schedule.smallest >= min(batch_size, rows)
    assert all(list(batch) == sorted(batch) for batch in dealt)


def test_batches_come_again_in_every_epoch_and_rounds_can_be_asked_in_any_order() -> None:
    schedule = BatchSchedule(100, 10, 3)
    forward = [schedule.rows_of(step).tolist() for step in range(1, 21)]
    backward = [schedule.rows_of(step).tolist() for step in range(20, 0, -1)][::-1]
    assert forward == backward
    assert forward[:10] == forward[10:]
    assert forward[:10] != [list(range(10 * at, 10 * at + 10)) for at in range(10)]


def test_without_a_batch_size_every_round_has_all_rows() -> None:
    schedule = BatchSchedule(5, None, 0)
    assert (schedule.smallest, schedule.batches) == (5, 1)
    assert schedule.rows_of(1).tolist() == schedule.rows_of(9).tolist() == [0, 1, 2, 3, 4]


def test_a_round_before_the_first_and_a_batch_of_nothing_are_refused() -> None:
    with pytest.raises(LocalProtocolError):
        BatchSchedule(5, None, 0).rows_of(0)
    with pytest.raises(DataError):
        BatchSchedule(5, 0, 0)
