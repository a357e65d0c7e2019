"""What is kept of a job that has not ended: whole, durable, bit by bit, and gone with the job."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.runtime.checkpoint import Checkpoint
from common.runtime.kept_shares import keep_share, kept_attempts, kept_share
from common.runtime.state import JobStore, StateError


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    store = JobStore(tmp_path)
    store.open()
    return Checkpoint.of(store, "ridge-1")


def test_nothing_is_made_before_something_is_kept(checkpoint):
    assert (checkpoint.kept("opened"), checkpoint.rounds(), checkpoint.has("opened")) == (None, {}, False)
    assert not checkpoint.folder.exists()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5))
def test_floats_come_back_bit_by_bit(tmp_path_factory, values):
    checkpoint = Checkpoint(tmp_path_factory.getbasetemp() / "floats")
    checkpoint.keep_round(1, values)
    assert [value.hex() for value in checkpoint.rounds()[1]] == [value.hex() for value in values]


def test_the_last_two_rounds_are_kept(checkpoint):
    for number in range(1, 6):
        checkpoint.keep_round(number, {"weights": [number / 3] * (6 - number)})
    assert checkpoint.rounds() == {4: {"weights": [4 / 3] * 2}, 5: {"weights": [5 / 3]}}


@pytest.mark.parametrize("left", range(0, 55, 6))
def test_a_round_that_was_being_written_counts_as_none_and_the_one_before_is_there(checkpoint, left):
    for number in (1, 2, 3):
        checkpoint.keep_round(number, number)
    path = checkpoint.folder / "round-1"
    torn = path.read_bytes()[:left]
    path.write_bytes(torn)
    assert checkpoint.rounds() == {2: 2}
    checkpoint.keep_round(3, "again")
    assert checkpoint.rounds() == {2: 2, 3: "again"}


def test_a_damaged_value_is_an_error_and_not_an_absence(checkpoint):
    checkpoint.keep("aligned", {"rows": 3})
    (checkpoint.folder / "aligned.json").write_bytes(b"{")
    with pytest.raises(StateError, match="damaged"):
        checkpoint.kept("aligned")


def test_values_that_are_not_finite_are_never_kept(checkpoint):
    with pytest.raises(ValueError, match="JSON"):
        checkpoint.keep_round(1, math.nan)


def test_only_the_owner_may_read(checkpoint):
    checkpoint.keep("opened", 1)
    checkpoint.keep_round(1, 1)
    assert checkpoint.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in checkpoint.folder.iterdir()} == {0o600}


def test_discarding_leaves_nothing_and_may_be_done_again(checkpoint):
    checkpoint.keep("opened", 1)
    checkpoint.discard()
    checkpoint.discard()
    assert not checkpoint.folder.exists()


def test_a_disk_that_takes_nothing_is_an_error_of_the_state(checkpoint):
    checkpoint.folder.parent.mkdir(parents=True)
    checkpoint.folder.touch()
    with pytest.raises(StateError, match="cannot be written"):
        checkpoint.keep("opened", 1)
    with pytest.raises(StateError, match="cannot be written"):
        checkpoint.keep_round(1, 1)


def test_shares_come_back_as_the_integers_they_were_with_their_attempt(checkpoint):
    share = np.array([[1 << 90, -3], [0, -(1 << 100)]], dtype=object)
    keep_share(checkpoint, "party_b", 4, share)
    assert kept_attempts(checkpoint, ("party_a2", "party_b")) == {"party_b": 4}
    assert np.array_equal(kept_share(checkpoint, "party_b"), share)
    assert kept_share(checkpoint, "party_a2") is None
