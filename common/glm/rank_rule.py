"""The rank rule (PROTOCOLS 1.2.5): a batch must have clearly more rows than either side has columns.

A sees X_A,S'd for a batch S. With |S| ≤ rank(X_A,S) it solves that for every residual of the batch; so does B
for A's scores. A batch comes again in every epoch while the other side's weights move, and that shows more:
up to the whole of X_A,S'X_B,S and X_A,S'y_S. It never shows more than that, because the batches are the same
in every epoch (`BatchSchedule`); dealt anew, they would add equations for the same rows without end.
"""

from __future__ import annotations

from collections.abc import Mapping

from common.errors import Refused

# Rows beyond what the equations of one party and its peer could fix: dimensions that stay hidden for good.
RANK_MARGIN = 10


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
