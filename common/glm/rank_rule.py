"""The rank rule (PROTOCOLS 1.2.5): a batch must have clearly more rows than either side has columns.

A sees X_A,S'd for a batch S. With |S| ≤ rank(X_A,S) it solves that for every residual of the batch; so does B
for A's scores. A batch that comes again and again while the other side's weights move shows more: up to the
whole of X_A,S'X_B,S. So a batch that is reused every round must be larger than one that is dealt anew each
epoch.
"""

from __future__ import annotations

from collections.abc import Mapping

from common.errors import Refused

# Rows beyond the number of columns: the dimensions of the residuals that stay hidden in one round.
RANK_MARGIN = 10


def require_rank_margin(batches: int, smallest: int, columns: Mapping[str, int]) -> None:
    """Refuse batches from which a party could solve for another party's rows.

    Args:
        batches: Batches in an epoch; 1 means that every round uses the same rows.
        smallest: Rows of the smallest batch.
        columns: Columns of every party, the intercept included.

    Raises:
        Refused: Names the party, its columns and the smallest allowed batch.
    """
    for party, count in columns.items():
        reused = batches == 1
        needed = (2 * count if reused else count) + RANK_MARGIN
        if smallest < needed:
            what = "all rows, used in every round," if reused else "a batch"
            raise Refused(
                f"{what} must be at least {needed} rows, because {party} has {count} columns; here it is "
                f"{smallest}: whoever has so many columns could solve for the other side's rows",
                advice="Use a larger train.batch_size, more rows, or fewer columns.",
            )
