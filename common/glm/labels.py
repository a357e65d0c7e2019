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
        negative: How the data writes −1.
        positive: How the data writes +1.
    """

    values: Floats = field(repr=False)
    negative: str
    positive: str

    @property
    def as_01(self) -> Floats:
        """The labels as 0 and 1, (n,)."""
        return np.asarray((self.values + 1.0) / 2.0)

    def describe(self) -> str:
        """Return the mapping in plain words."""
        return f"label {self.positive} is the positive class (+1), {self.negative} the negative one (−1)"


def signed_labels(column: Floats, name: str, positive: float | None) -> SignedLabels:
    """Return a label column as −1 and +1.

    Args:
        column: (n,).
        name: Of the column, for messages.
        positive: Which of two values is +1; None for {0, 1} and {−1, +1}, where it is 1.

    Raises:
        DataError: There are not exactly two values, or none of them is `positive`, or it is not clear.
    """
    found = np.unique(column)
    if len(found) != 2:
        raise DataError(
            f"label {name!r} has {len(found)} different values; a classifier needs two",
            advice="Use algorithm: he_linear for a label that is a number.",
        )
    known = (0.0, 1.0), (-1.0, 1.0)
    if positive is None:
        if tuple(found.tolist()) not in known:
            raise DataError(
                f"label {name!r} has two values, but they are neither {{0, 1}} nor {{-1, +1}}",
                advice="Name the one that counts as +1 in the job file: data.positive.",
            )
        positive = 1.0
    if positive not in found:
        raise DataError(f"data.positive is not among the two values of label {name!r}")
    negative = float(found[0] if found[1] == positive else found[1])
    values = np.where(column == positive, 1.0, -1.0)
    return SignedLabels(values, f"{negative:g}", f"{positive:g}")
