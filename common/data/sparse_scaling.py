"""What preprocessing learns about sparse columns: which vary, and what each is divided by.

Nothing is ever subtracted from a column, or its zeros would be zeros no more: `standardize` divides by the
standard deviation and leaves the mean where it is, `max_abs` divides by the largest absolute value. Both are
scikit-learn's (StandardScaler without a mean, MaxAbsScaler).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from common.data.columns import frozen
from common.data.preparation import Scale
from common.data.sparse_columns import SparseColumns, first_few
from common.data.wording import counted
from common.errors import ConfigError, NumericError
from common.types import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class FittedSparse:
    """x / scale of the columns that vary on the training rows.

    Attributes:
        numbers: (d,), ascending.
        scales: (d,), above 0.
    """

    numbers: Ints = field(repr=False)
    scales: Floats = field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' numbers as text."""
        return tuple(map(str, self.numbers.tolist()))

    def apply(self, columns: SparseColumns) -> Any:
        """Return the columns scaled, as compressed rows (n, d); those the rows do not have are zeros."""
        chosen = columns.select(self.numbers).matrix
        data = chosen.data / self.scales[chosen.indices]
        return csr_array((data, chosen.indices, chosen.indptr), shape=chosen.shape)

    def unknown(self, columns: SparseColumns) -> list[str]:
        """Return a note on columns of these rows that the model does not have."""
        new = np.setdiff1d(columns.numbers, self.numbers, assume_unique=True)
        if not len(new):
            return []
        return [f"{counted(len(new), 'sparse column')} of {columns.matrix.shape[1]:,} not in the model"]

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values; numbers survive exactly."""
        return {"numbers": self.numbers.tolist(), "scales": self.scales.tolist()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FittedSparse:
        """Return what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: The document is something else.
        """
        numbers = np.array(document["numbers"], dtype=np.int64)
        scales = np.array(document["scales"], dtype=np.float64)
        if numbers.ndim != 1 or numbers.shape != scales.shape or not (np.diff(numbers) > 0).all():
            raise ValueError("sparse columns need ascending numbers and as many scales")
        if not (np.isfinite(scales) & (scales > 0)).all():
            raise ValueError("a scale is not positive")
        return cls(frozen(numbers), frozen(scales))


def fit_sparse(training: SparseColumns, scale: Scale) -> tuple[FittedSparse, tuple[str, ...]]:
    """Return what the training rows taught, and notes on what was decided.

    Raises:
        NumericError: A column is so large that its variance overflows; names it.
        ConfigError: The scale would need zeros to become something else.
    """
    if scale == "minmax":
        raise ConfigError(
            "scale: minmax would make numbers of a sparse column's zeros",
            advice="use scale: max_abs, which keeps them",
        )
    with np.errstate(over="ignore", invalid="ignore"):
        fitted = StandardScaler(with_mean=False).fit(training.matrix)
    broken = np.flatnonzero(~np.isfinite(fitted.var_))
    if len(broken):
        raise NumericError(
            f"feature {str(training.numbers[broken[0]])!r} is too large to be scaled",
            advice="give it in a larger unit",
        )
    # scikit-learn has the rule for "constant up to rounding" and then sets the scale to exactly 1.
    varies = ~((fitted.scale_ == 1.0) & (fitted.var_ != 1.0))
    scales = np.ones(len(varies))
    if scale == "standardize":
        scales = fitted.scale_
    elif scale == "max_abs":
        scales = MaxAbsScaler().fit(training.matrix).scale_
    left_out = list(map(str, training.numbers[~varies].tolist()))
    notes = _notes(scale, left_out)
    return FittedSparse(frozen(training.numbers[varies]), frozen(scales[varies].astype(np.float64))), notes


def _notes(scale: Scale, left_out: list[str]) -> tuple[str, ...]:
    notes = []
    if scale == "standardize":
        notes.append(
            "sparse columns were divided by their standard deviation and not centred: zeros stay zeros"
        )
    if left_out:
        shown = first_few(left_out)
        notes.append(f"sparse, constant on the training rows, and left out: {shown}")
    return tuple(notes)
