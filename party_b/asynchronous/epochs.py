"""What the keeper of the epochs has decided, on its disk before anybody is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from common.errors import LocalProtocolError
from common.glm.asynchronous import EpochEnd
from common.runtime.checkpoint import Checkpoint
from common.runtime.state import JobStore, StateError

_EPOCHS = "epochs"


@dataclass(slots=True)
class EpochBook:
    """Decisions about one job's epochs.

    Attributes:
        keep: Writes them down.
        session: The number of the last session; grows over restarts.
        objectives: At the ends of epochs 0, 1, …
        seconds: When they were known, since the first one; times between processes are not counted.
        end: The last end of an epoch.
        learning_rate: That training goes on with, None before it was chosen.
        ending: Whether training ends at the last end.
        because: Why, in plain words.
        converged: Whether because the objective has settled.
        chosen: How the step size was found, in plain words.
    """

    keep: Callable[[Mapping[str, Any]], None]
    session: int = 0
    objectives: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    end: EpochEnd | None = None
    learning_rate: float | None = None
    ending: bool = False
    because: str = ""
    converged: bool = False
    chosen: str = ""

    def next_session(self) -> int:
        """Return a number that no session of this job ever had."""
        self.session += 1
        self._write()
        return self.session

    def decide(self, end: EpochEnd) -> None:
        """Note the end of an epoch."""
        self.end = end
        self._write()

    def add_objective(self, objective: float, seconds: float) -> None:
        """Note the objective at the last end, and how long after the one before it was known."""
        self.seconds.append(self.seconds[-1] + seconds if self.seconds else 0.0)
        self.objectives.append(objective)
        self._write()

    def choose(self, learning_rate: float, how: str) -> None:
        """Note the step size that everybody has begun with."""
        self.learning_rate, self.chosen = learning_rate, how
        self._write()

    def stop(self, because: str, converged: bool) -> None:
        """Note that training ends; the first reason stays."""
        if not self.ending:
            self.ending, self.because, self.converged = True, because, converged
            self._write()

    def require_end(self) -> EpochEnd:
        """Return the last end of an epoch.

        Raises:
            LocalProtocolError: None was decided on.
        """
        if self.end is None:
            raise LocalProtocolError("no epoch has ended yet, not even the start")
        return self.end

    def _write(self) -> None:
        end = None if self.end is None else {"epoch": self.end.epoch, "cut": dict(self.end.cut)}
        self.keep(
            {
                "session": self.session,
                "objectives": self.objectives,
                "seconds": self.seconds,
                "end": end,
                "learning_rate": self.learning_rate,
                "ending": self.ending,
                "because": self.because,
                "converged": self.converged,
                "chosen": self.chosen,
            }
        )


def epoch_book(store: JobStore, job_id: str) -> EpochBook:
    """Return what was decided in a job so far: nothing in a new one.

    Raises:
        StateError: It cannot be read.
    """

    checkpoint = Checkpoint.of(store, job_id)

    def keep(values: Mapping[str, Any]) -> None:
        checkpoint.keep(_EPOCHS, dict(values))

    kept = checkpoint.kept(_EPOCHS)
    if kept is None:
        return EpochBook(keep)
    try:
        end = kept["end"]
        return EpochBook(
            keep,
            session=int(kept["session"]),
            objectives=[float(value) for value in kept["objectives"]],
            seconds=[float(value) for value in kept["seconds"]],
            end=None if end is None else EpochEnd(int(end["epoch"]), dict(end["cut"])),
            learning_rate=kept["learning_rate"],
            ending=bool(kept["ending"]),
            because=str(kept["because"]),
            converged=bool(kept["converged"]),
            chosen=str(kept["chosen"]),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise StateError("the record of the epochs is damaged", where=str(checkpoint.folder)) from exc
