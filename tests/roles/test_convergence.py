"""When the active party stops a job."""

from __future__ import annotations

import pytest

from common.errors import NumericError
from party_b.regression.convergence import Convergence


def rounds_until_settled(losses, tolerance=1e-3, rounds_per_epoch=1):
    convergence = Convergence(tolerance, rounds_per_epoch)
    return next((number for number, loss in enumerate(losses, 1) if convergence.settled(loss)), None)


def test_a_small_relative_change_stops_the_job():
    assert rounds_until_settled([100.0, 50.0, 49.0, 48.99, 10.0]) == 4


def test_without_a_tolerance_nothing_stops_it():
    assert rounds_until_settled([1.0] * 50, tolerance=None) is None


def test_rounds_without_a_loss_are_passed_over():
    assert rounds_until_settled([5.0, None, None, 5.0, 1.0]) == 4


def test_mini_batches_are_judged_by_epochs_and_not_by_two_like_batches():
    assert rounds_until_settled([9.0, 9.0, 4.0, 4.0, 4.0, 4.0], rounds_per_epoch=2) == 6


def test_a_loss_that_keeps_rising_ends_the_job_and_names_the_step_size():
    with pytest.raises(NumericError, match="diverges") as caught:
        rounds_until_settled([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], tolerance=None)
    assert "learning_rate" in caught.value.advice


def test_a_loss_that_rises_for_a_while_below_its_start_goes_on():
    assert rounds_until_settled([100.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0], tolerance=None) is None


def test_a_noisy_loss_that_falls_in_between_goes_on():
    assert rounds_until_settled([1.0, 2.0, 3.0, 2.9, 4.0, 5.0, 4.9, 6.0], tolerance=None) is None
