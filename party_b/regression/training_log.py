"""What the active party keeps of encrypted regression on its disk, from the first round to the closing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.errors import JobError
from common.glm.conjugate import Turn
from common.glm.solvers import SolverState
from common.runtime.checkpoint import Checkpoint
from common.runtime.kept_data import hold_to

_LOSSES = "losses"
# So many rounds' losses travel with every round; a longer history is written again as seldom as that.
_LOSSES_EVERY = 256


@dataclass(frozen=True, slots=True)
class KeptRound:
    """Where training stands after a round.

    Attributes:
        losses: Of every round so far, in mean form; None where nobody knows it.
        turned: What the passive parties' next direction takes.
        scalars: Of conjugate gradients.
    """

    number: int
    losses: Sequence[float | None]
    converged: bool
    solver: SolverState = field(repr=False)
    turned: Turn
    scalars: tuple[float, float, float] | None


class TrainingLog:
    """One job's rounds on the active party's disk."""

    def __init__(self, checkpoint: Checkpoint, cost: Callable[[], Mapping[str, object]]) -> None:
        """`cost` says what the job has cost so far."""
        self.checkpoint = checkpoint
        self._cost = cost
        self._long_kept = -1

    def begin(self, facts: Mapping[str, object]) -> None:
        """Hold a later attempt to the data of the first; `facts` are never told to anybody.

        Raises:
            DataError: They have changed.
        """
        hold_to(self.checkpoint, facts)

    def keep(self, last: KeptRound) -> None:
        """Keep a round, durably, before anything computed from it is sent."""
        long = len(last.losses) // _LOSSES_EVERY * _LOSSES_EVERY
        if long != self._long_kept:
            self.checkpoint.keep(_LOSSES, list(last.losses[:long]))
            self._long_kept = long
        self.checkpoint.keep_round(
            last.number,
            {
                "losses": list(last.losses[long:]),
                "before": long,
                "converged": last.converged,
                "solver": last.solver,
                "turned": [last.turned.mixing, last.turned.scale],
                "scalars": last.scalars,
                "cost": self._cost(),
            },
        )

    def last(self) -> KeptRound | None:
        """Return the last round that was kept, None before the first.

        Raises:
            JobError: Its losses are gone.
        """
        number, kept = self._last()
        if kept is None:
            return None
        long = self.checkpoint.kept(_LOSSES)
        if long is None or len(long) < kept["before"]:
            raise JobError("the job cannot go on: the losses of its rounds are gone from the disk")
        scalars = kept["scalars"]
        return KeptRound(
            number,
            [*long[: kept["before"]], *kept["losses"]],
            bool(kept["converged"]),
            kept["solver"],
            Turn(*kept["turned"]),
            None if scalars is None else (scalars[0], scalars[1], scalars[2]),
        )

    def cost(self) -> Mapping[str, Any] | None:
        """Return what the job had cost when its last round was kept, None before the first."""
        _, kept = self._last()
        return None if kept is None else kept["cost"]

    def _last(self) -> tuple[int, Any]:
        rounds = self.checkpoint.rounds()
        number = max(rounds, default=0)
        return number, rounds.get(number)
