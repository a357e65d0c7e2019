"""One party's rows, dense or sparse: the products that stochastic updates need.

Row numbers are positions among the training rows, from 0; those of a batch are distinct.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array

from common.errors import DataError
from common.types import Floats, Ints


class FeatureRows(Protocol):
    """X_l, n rows of d columns."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...

    def scores(self, rows: Ints, weights: Floats) -> Floats:
        """Return x_i·w of the given rows, (b,)."""
        ...

    def combine(self, rows: Ints, coefficients: Floats) -> Floats:
        """Return Σ_i c_i x_i over the given rows, (d,)."""
        ...

    def combine_all(self, coefficients: Floats) -> Floats:
        """Return X'c over all rows, (d,)."""
        ...

    def dense(self, rows: Ints) -> Floats:
        """Return the given rows with all their columns, (b, d), a copy."""
        ...


class DenseRows:
    """Rows as a matrix in row-major order, so that a row is one piece of memory."""

    def __init__(self, matrix: Floats) -> None:
        self._matrix: Floats = np.ascontiguousarray(matrix, dtype=np.float64)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._matrix.shape[0], self._matrix.shape[1]

    def scores(self, rows: Ints, weights: Floats) -> Floats:
        """Return x_i·w of the given rows."""
        return np.asarray(self.dense(rows) @ weights)

    def combine(self, rows: Ints, coefficients: Floats) -> Floats:
        """Return Σ_i c_i x_i over the given rows."""
        return np.asarray(coefficients @ self.dense(rows))

    def combine_all(self, coefficients: Floats) -> Floats:
        """Return X'c over all rows."""
        return np.asarray(coefficients @ self._matrix)

    def dense(self, rows: Ints) -> Floats:
        """Return the given rows with all their columns."""
        return np.take(self._matrix, rows, axis=0)  # half the time of an index, for small batches


class SparseRows:
    """Rows in compressed form (CSR): memory for the non-zero entries, and one vector of d in a product.

    scipy's own row selection builds a new matrix for each batch, which costs more than the product itself
    for small ones; so the entries of a batch are gathered here.
    """

    def __init__(self, matrix: Any) -> None:
        """Take a scipy.sparse matrix or array of any format.

        Raises:
            DataError: It is not two-dimensional.
        """
        if getattr(matrix, "ndim", None) != 2:
            raise DataError("sparse features must have rows and columns")
        compressed = csr_array(matrix, dtype=np.float64)
        compressed.sum_duplicates()
        self._matrix = compressed
        self._starts: Ints = compressed.indptr.astype(np.int64)
        self._columns = compressed.indices
        self._values: Floats = compressed.data

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._matrix.shape[0], self._matrix.shape[1]

    def scores(self, rows: Ints, weights: Floats) -> Floats:
        """Return x_i·w of the given rows."""
        entries, owners = self._entries(rows)
        products = self._values[entries] * weights[self._columns[entries]]
        return np.asarray(np.bincount(owners, weights=products, minlength=len(rows)), dtype=np.float64)

    def combine(self, rows: Ints, coefficients: Floats) -> Floats:
        """Return Σ_i c_i x_i over the given rows."""
        entries, owners = self._entries(rows)
        products = self._values[entries] * coefficients[owners]
        sums = np.bincount(self._columns[entries], weights=products, minlength=self.shape[1])
        return np.asarray(sums, dtype=np.float64)

    def combine_all(self, coefficients: Floats) -> Floats:
        """Return X'c over all rows."""
        return np.asarray(self._matrix.T @ coefficients)

    def dense(self, rows: Ints) -> Floats:
        """Return the given rows with all their columns."""
        return np.asarray(self._matrix[rows].toarray())

    def _entries(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return where the entries of rows lie, and which of the rows each belongs to."""
        begins = self._starts[rows]
        lengths = self._starts[rows + 1] - begins
        ends = np.cumsum(lengths)
        owners = np.repeat(np.arange(len(rows)), lengths)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        return begins[owners] + within, owners
