"""The rank rule (PROTOCOLS 1.2.5): a batch must have clearly more rows than either side has columns.

A sees X_A,S'd for a batch S. With |S| ≤ rank(X_A,S) it solves that for every residual of the batch; so does B
for A's scores. A batch comes again in every epoch while the other side's weights move, and that shows more:
up to the whole of X_A,S'X_B,S and X_A,S'y_S. It never shows more than that, because the batches are the same
in every epoch (`BatchSchedule`); dealt anew, they would add equations for the same rows without end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from common.errors import Refused
from common.types import Floats

# Rows beyond what the equations of one party and its peer could fix: dimensions that stay hidden for good.
RANK_MARGIN = 10

# A leverage of 1 up to rounding; a singular value below this part of the largest is none.
_ALONE = 1.0 - 1e-6
_RANK_TOLERANCE = 1e-10


def require_rank_margin(smallest: int, columns: Mapping[str, int]) -> None:
    """Refuse batches from which a party could solve for another party's rows.

    Args:
        smallest: Rows of the smallest batch; all rows are one batch, too.
        columns: Columns of every party, the intercept included.

    Raises:
        Refused: Names the party, its columns and the smallest allowed batch.
    """
    for party, count in columns.items():
        needed = 2 * count + RANK_MARGIN
        if smallest < needed:
            raise Refused(
                f"a batch must be at least {needed} rows, because {party} has {count} columns; here it is "
                f"{smallest}: whoever has so many columns could solve for the other side's rows",
                advice="Use a larger train.batch_size, more rows, or fewer columns.",
            )


def require_company(party: str, batches: Iterable[Floats]) -> None:
    """Refuse batches in which a party's columns single out a row, whatever the rank: it would get that θ.

    X'θ gives a party θ's projection on the span of its columns. A row's own θ follows from that exactly if
    its leverage (the diagonal of X(X'X)⁻X') is 1, as where it alone has a value in some column.

    Args:
        party: Whose columns.
        batches: The rows of each batch, (b, d).

    Raises:
        Refused: Says in how many batches; only the party itself can know.
    """
    alone = sum(1 for batch in batches if _largest_leverage(batch) > _ALONE)
    if alone:
        raise Refused(
            f"in {alone} batches {party} has a row that is alone in some combination of its columns: "
            "the derivative of that row, and with it the label, could be computed",
            advice="Use a larger train.batch_size, leave out columns with few values, or raise "
            "categories.min_frequency.",
        )


def _largest_leverage(batch: Floats) -> float:
    left, sizes, _ = np.linalg.svd(batch, full_matrices=False)
    basis = left[:, sizes > _RANK_TOLERANCE * sizes.max(initial=0.0)]
    return float(np.sum(basis**2, axis=1).max(initial=0.0))
