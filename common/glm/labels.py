"""Binary labels as −1 and +1, and what they were called."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from common.errors import DataError
from common.types import Floats


@dataclass(frozen=True, slots=True, eq=False)
class SignedLabels:
    """Labels of a classifier.

    Attributes:
        values: −1 and +1, (n,).
        negative: How the data writes −1: "0" or "-1".
    """

    values: Floats = field(repr=False)
    negative: str

    @property
    def as_01(self) -> Floats:
        """The labels as 0 and 1, (n,)."""
        return np.asarray((self.values + 1.0) / 2.0)

    def describe(self) -> str:
        """Return the mapping in plain words."""
        return f"label 1 is the positive class (+1), {self.negative} the negative one (−1)"


def signed_labels(column: Floats, name: str) -> SignedLabels:
    """Return a label column of 0 and 1, or of −1 and +1, as −1 and +1.

    Args:
        column: (n,).
        name: Of the column, for messages.

    Raises:
        DataError: There are other values, or only one.
    """
    found = np.unique(column)
    if len(found) != 2:
        count = "only one value" if len(found) == 1 else f"{len(found)} different values"
        raise DataError(
            f"label {name!r} has {count}; a classifier needs two",
            advice="A label that is a number takes algorithm: he_linear, or vfb2 with train.loss: squared.",
        )
    if tuple(found.tolist()) not in ((0.0, 1.0), (-1.0, 1.0)):
        raise DataError(
            f"label {name!r} has two values, but they are neither {{0, 1}} nor {{-1, +1}}",
            advice="Name the one that counts as +1 in the job file: data.positive.",
        )
    return SignedLabels(np.where(column == 1.0, 1.0, -1.0), f"{found[0]:g}")
