"""What stage 1 hands over to stage 2, on B's own disk: teachers' predictions and A's representations."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from common.errors import UnknownJob
from common.nets.protect import Singles
from common.runtime.config.networks import Run
from common.runtime.epoch_store import EpochStore
from common.runtime.state import StateError
from common.types import Floats
from party_b.networks.training import Progress

Numbers: TypeAlias = Singles | Floats


@dataclass(frozen=True, slots=True, eq=False)
class Taught:
    """What one run's split network knows.

    Attributes:
        progress: How its training went.
        representations: h of the training and validation rows by passive party, in the common order.
        logits: ŷ of the same rows, (n,).
        test_logits: ŷ of the common test rows; None if they were not asked for.
        rounding: What the wire rounds away of representations and of gradients, root mean square, relative.
        leaks: How well attacks on the gradients rank labels, by passive party; empty if they did not run.
    """

    progress: Progress
    representations: Mapping[str, Singles] = field(repr=False)
    logits: Floats = field(repr=False)
    test_logits: Floats | None = field(repr=False)
    rounding: Mapping[str, float]
    leaks: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TeacherShelf:
    """The runs that have been taught; a run is there when its last file is."""

    files: EpochStore

    def has(self, run: Run) -> bool:
        """Tell whether a run was taught to its end."""
        return self.files.checkpoint.kept(_name(run, "taught")) is not None

    def keep(self, run: Run, taught: Taught, columns: Mapping[str, int], weights: bytes) -> None:
        """Keep what a run knows.

        Args:
            run: Which one.
            taught: What it knows.
            columns: Of the passive parties' tables.
            weights: B's half, of the run that makes the model; else empty.
        """
        arrays: dict[str, Numbers] = {"logits.npy": taught.logits}
        arrays |= {f"{name}.h.npy": values for name, values in taught.representations.items()}
        if taught.test_logits is not None:
            arrays["test.npy"] = taught.test_logits
        for name, values in arrays.items():
            self.files.write(_name(run, name), _array_bytes(values))
        if weights:
            self.files.write(_name(run, "weights.safetensors"), weights)
        said = {
            "progress": taught.progress.to_json(),
            "parties": list(taught.representations),
            "tested": taught.test_logits is not None,
            "rounding": dict(taught.rounding),
            "leaks": {party: dict(leak) for party, leak in taught.leaks.items()},
            "columns": dict(columns),
        }
        self.files.checkpoint.keep(_name(run, "taught"), said)

    def load(self, run: Run) -> Taught:
        """Return what a run knows.

        Raises:
            UnknownJob: It was not taught to its end.
            StateError: A file is damaged.
        """
        said = self._said(run)
        try:
            return Taught(
                Progress.from_json(said["progress"]),
                {str(name): self._array(run, f"{name}.h.npy").astype(np.float32) for name in said["parties"]},
                self._array(run, "logits.npy"),
                self._array(run, "test.npy") if said["tested"] else None,
                dict(said["rounding"]),
                dict(said["leaks"]),
            )
        except (KeyError, TypeError, ValueError) as exc:
            raise StateError(
                "what a split network taught is damaged", where=str(self.files.checkpoint.folder)
            ) from exc

    def weights(self, run: Run) -> bytes:
        """Return B's half of the run that makes the model."""
        return self.files.read(_name(run, "weights.safetensors"))

    def columns(self, run: Run) -> Mapping[str, int]:
        """Return the passive parties' numbers of columns."""
        found: Mapping[str, int] = self._said(run)["columns"]
        return found

    def _said(self, run: Run) -> dict[str, Any]:
        said: dict[str, Any] | None = self.files.checkpoint.kept(_name(run, "taught"))
        if said is None:
            raise UnknownJob(f"run {run.number} was not taught to its end")
        return said

    def _array(self, run: Run, name: str) -> npt.NDArray[np.float64]:
        content = self.files.read(_name(run, name))
        values: npt.NDArray[np.float64] = np.load(io.BytesIO(content), allow_pickle=False)
        return values


def _array_bytes(values: Numbers) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    return buffer.getvalue()


def _name(run: Run, what: str) -> str:
    return f"run{run.number}-{what}"
