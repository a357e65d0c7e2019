"""Holding a party's own values to the limits that the plan was proved for (plan.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.crypto.plan import FEATURE_LIMIT, SCORE_LIMIT
from common.errors import NumericError
from common.types import Floats

# What varies by fewer rounding steps than this is mostly rounding: 2 % an entry at 16 steps.
_LEAST_STEPS_BITS = 4


def check_resolution(columns: Floats, names: Sequence[str], scale_bits: int) -> None:
    """Refuse columns, shape (n, d), that fixed-point numbers would round away; zeros are exact, and pass.

    Raises:
        NumericError: Names the first column whose largest value is below 16 steps of 2^-scale_bits.
    """
    largest = np.abs(columns).max(axis=0, initial=0.0)
    lost = np.flatnonzero((largest > 0) & (largest < 2.0 ** (_LEAST_STEPS_BITS - scale_bits)))
    if lost.size:
        raise NumericError(
            f"{names[lost[0]]!r} is so small that {scale_bits} bits of precision would round it away",
            advice="Rescale that column, or raise crypto.precision_bits (60 at most).",
        )


def check_features(features: Floats, names: Sequence[str]) -> Floats:
    """Return the features, shape (n, d), if every value is finite and within ±FEATURE_LIMIT.

    Raises:
        NumericError: Names the first feature that is not.
    """
    within = np.abs(features) <= FEATURE_LIMIT  # False for NaN too
    if not within.all():
        column = int(np.flatnonzero(~within.all(axis=0))[0])
        beyond = int((~within[:, column]).sum())
        raise NumericError(
            f"feature {names[column]!r} has {beyond} values beyond ±{FEATURE_LIMIT:.3g}",
            advice="Set data.standardize: true, or rescale the column.",
        )
    return features


def check_scores(scores: Floats) -> Floats:
    """Return scores or residuals, shape (n,), if every value is finite and within ±SCORE_LIMIT.

    Raises:
        NumericError: One is not.
    """
    if not (np.abs(scores) <= SCORE_LIMIT).all():
        raise NumericError(
            f"the scores have left ±{SCORE_LIMIT:.3g}: the training diverges, or the labels are too large",
            advice="Lower train.learning_rate, standardize the features, or rescale the label.",
        )
    return scores


def check_loss_share(loss: float, rows: int) -> float:
    """Return one party's part of the sum-form loss if the plan covers it.

    Raises:
        NumericError: It does not.
    """
    if not abs(loss) <= rows * SCORE_LIMIT**2:
        raise NumericError(
            "the loss has left the range that was proved before the first round: the training diverges"
        )
    return loss
