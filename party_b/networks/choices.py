"""What validation rows chose for students that have a teacher: whether to follow it, and how labels count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """Of one student.

    Attributes:
        method: As a reader knows it.
        seed: Of its run.
        overlap: Part of the common training rows that was used.
        taught: Whether it follows the split network.
        label_factor: By which the weights of its 0/1 labels were multiplied.
    """

    method: str
    seed: int
    overlap: float
    taught: bool
    label_factor: float


def sentences(choices: Sequence[Choice], own: str, active: str) -> list[str]:
    """Say what was chosen for the job's own model, and in how many of its repetitions."""
    ours = [one for one in choices if one.method == own and one.overlap == 1.0]
    if not ours:
        return []
    first, taught = ours[0], sum(one.taught for one in ours)
    if first.taught:
        counted = f"its 0/1 labels count {first.label_factor:g} times their weights"
        said = f"{own} follows the split network; {counted}"
    else:
        said = (
            f"{own} does not follow the split network, which does not rank the common validation rows "
            f"clearly better than {active}'s columns do alone: this model is one without A"
        )
    return [said if len(ours) == 1 else f"{said} (it follows it with {taught} of {len(ours)} seeds)"]
