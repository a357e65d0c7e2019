"""Holds a job that goes on after a loss to what it began with."""

from __future__ import annotations

from collections.abc import Mapping

from common.data.table import Table
from common.errors import DataError
from common.runtime.checkpoint import Checkpoint

_BEGUN = "begun"


def hold_to(checkpoint: Checkpoint, facts: Mapping[str, object], where: str = "", part: str = "") -> None:
    """Note durably what a job began with, or refuse to go on with anything else.

    Args:
        checkpoint: Of the job, at this party.
        facts: By name; digests and settings, which are never told to anybody.
        where: They come from, for the message.
        part: Of the job, when what it began with is noted in several.

    Raises:
        DataError: They have changed: weights of before and after would belong to no data at all.
    """
    name = f"{_BEGUN}-{part}" if part else _BEGUN
    kept = checkpoint.kept(name)
    if kept is None:
        checkpoint.keep(name, dict(facts))
    elif kept != facts:
        changed = ", ".join(sorted(name for name in facts if facts[name] != kept.get(name)))
        raise DataError(
            f"the job cannot go on: what it began with has changed ({changed})",
            where=where,
            advice="Put the data back as it was, or submit the job again.",
        )


def hold_to_data(checkpoint: Checkpoint, table: Table, dataset: str) -> None:
    """Hold a job to its aligned rows, as they were read now; `dataset` is their name, for the message.

    Raises:
        DataError: They are not the rows of the first time.
    """
    hold_to(checkpoint, {f"data set {dataset}": table.digest().hex()}, table.source)


def hold_to_digest(checkpoint: Checkpoint, digest: bytes, table: Table, part: str) -> None:
    """Hold one part of a job to what it is trained on, of which this is a digest; the table names it.

    Raises:
        DataError: It is not what it was the first time.
    """
    hold_to(checkpoint, {f"data set {table.name}": digest.hex()}, table.source, part)
