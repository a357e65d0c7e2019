"""Holds a job that goes on after a loss to the rows that it began with."""

from __future__ import annotations

from common.data.table import Table
from common.errors import DataError
from common.runtime.checkpoint import Checkpoint

_DATA = "data"


def hold_to_data(checkpoint: Checkpoint, table: Table, dataset: str) -> None:
    """Note durably which rows a job began with, or refuse to go on with others.

    Args:
        checkpoint: Of the job, at this party.
        table: The aligned rows as they were read now.
        dataset: Its name, for the message.

    Raises:
        DataError: They are not the rows of the first time: weights of both would belong to no data at all.
    """
    digest = table.digest().hex()
    kept = checkpoint.kept(_DATA)
    if kept is None:
        checkpoint.keep(_DATA, digest)
    elif kept != digest:
        raise DataError(
            f"the job cannot go on: the data set {dataset} is not the one that it began with",
            where=table.source,
            advice="Put the data back as it was, or submit the job again.",
        )
