"""Holding a party's own values to the limits that the plan was proved for (plan.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.crypto.plan import FEATURE_LIMIT, SCORE_LIMIT
from common.errors import NumericError
from common.types import Floats


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
