"""What VFB² with `theta: encrypted` fixes for all parties: scale, batches, limits."""

from __future__ import annotations

from collections.abc import Sequence

from common.crypto.fixed_point import FixedPoint
from common.crypto.paillier import PublicKey
from common.crypto.plan import PlanRequest, prove_ranges
from common.data.split import BatchSchedule
from common.errors import RemoteProtocolError
from common.glm.rank_rule import require_rank_margin
from common.runtime.config.vfb2 import Vfb2Job
from common.types import Ints

SCALE = FixedPoint(32)
"""Derivatives and columns are rounded to multiples of 2^-32; their sums carry twice the scale."""

ENCRYPTING, DECRYPTING, MULTIPLYING = "encrypting", "decrypting", "multiplying"
"""What a party's seconds under encryption are counted as."""

ROWS_PER_SEALED = 1024
"""Encrypted derivatives in one message: half a mebibyte at 2048 bits."""


def fixed_batches(job: Vfb2Job, rows: int) -> list[Ints]:
    """Return the batches of every pass, the same at all parties and for all dominators."""
    schedule = BatchSchedule(rows, job.train.batch_size, job.train.seed)
    return [schedule.rows_of(number) for number in range(1, schedule.batches + 1)]


def most_rows(job: Vfb2Job, rows: int) -> int:
    """Return how many rows an update has at most."""
    if job.train.theta == "plain":
        return min(job.train.batch_size, rows)
    return -(-rows // max(1, rows // job.train.batch_size))


def require_guarded(job: Vfb2Job, rows: int, columns: dict[str, int]) -> None:
    """Prove before the first update that nobody can solve for θ, and that nothing overflows.

    Args:
        job: The job.
        rows: Training rows.
        columns: Of collaborators.

    Raises:
        Refused: A batch has too few rows for a party's columns.
        NumericError: A value could overflow.
    """
    require_rank_margin(min(job.train.batch_size, rows), columns)
    prove_ranges(
        PlanRequest(
            key_bits=job.train.theta_key_bits,
            scale_bits=SCALE.scale_bits,
            rows=rows,
            columns=max(columns.values()),
        )
    )


def residues_to_bytes(residues: Sequence[int], key: PublicKey) -> bytes:
    """Return residues as they travel: big-endian, each as wide as N."""
    return b"".join(residue.to_bytes(key.residue_bytes, "big") for residue in residues)


def residues_from_bytes(data: bytes, key: PublicKey) -> tuple[int, ...]:
    """Return received residues.

    Raises:
        RemoteProtocolError: The last one is torn, or one is not below N.
    """
    width = key.residue_bytes
    if len(data) % width:
        raise RemoteProtocolError("the last residue is not whole")
    residues = tuple(int.from_bytes(data[at : at + width], "big") for at in range(0, len(data), width))
    if any(residue >= key.modulus for residue in residues):
        raise RemoteProtocolError("a residue is not below N")
    return residues
