"""What conjugate gradients tell besides: scalars in the clear, and products of search directions."""

from __future__ import annotations

from collections.abc import Iterator

from common.runtime.config.job import JobConfig

# Sender, receiver, what, amount, protection: the fields of a flow of the report.
Row = tuple[str, str, str, str, str]


def conjugate_passive(job: JobConfig, party: str, columns: int, rounds: int) -> Iterator[str]:
    """Yield what a passive party learnt, and what the active one learnt of it."""
    yield (
        f"{party} saw X'd of its own columns, {columns:,} numbers, in round 1, where {job.active} is "
        f"fitted alone and all other weights are 0; and in each of {max(0, rounds - 1):,} later rounds "
        f"X'Xp, {columns:,} numbers, for a search direction p of all parties together."
    )
    yield (
        f"{party} received three numbers in every round, which are about all parties together: how far "
        "to go (α), how much of the last direction to keep (β), and a power of two near the size of "
        "the residual."
    )
    yield (
        f"{job.active} received two numbers of {party} in every round in the clear: its parts of p·Hp "
        "and of r·M⁻¹r, that is, how much of the curvature and of the residual is its own."
    )


def conjugate_flows(job: JobConfig) -> list[Row]:
    """Return the scalars that travel."""
    rows: list[Row] = []
    for party in job.passive:
        rows.append((party, job.active, "its parts of p·Hp and r·M⁻¹r", "2 numbers a round", "clear"))
        rows.append((job.active, party, "α, β and the scale of the direction", "3 numbers a round", "clear"))
    return rows
