"""Rows as a network takes them; may lie in memory-mapped files."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from common.data.columns import Codes
from common.errors import LocalProtocolError
from common.nets.shape import FieldLayout
from common.types import Ints


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRows:
    """n encoded rows; may be seen by their owner alone.

    Attributes:
        indices: (n, c) int32, rows of the party's embedding table; the table's last row is the padding.
        numbers: (n, k) float32, finite.
    """

    indices: Codes = field(repr=False)
    numbers: npt.NDArray[np.float32] = field(repr=False)

    def __len__(self) -> int:
        return len(self.indices)

    def require_fit(self, layout: FieldLayout) -> None:
        """Return if a network of this layout can take the rows.

        Raises:
            LocalProtocolError: They were encoded by another plan.
        """
        n = len(self.indices)
        if self.indices.shape != (n, sum(layout.widths)) or self.numbers.shape != (n, layout.numbers):
            raise LocalProtocolError("the rows were encoded for another network")

    def take(self, rows: Ints) -> EncodedRows:
        """Return the rows at these positions, copied into memory."""
        return EncodedRows(np.asarray(self.indices[rows]), np.asarray(self.numbers[rows]))
