"""What training and measuring left, kept so that closing a job and writing its report survive a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.state import StateError
from common.types import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Vfb2Trained:
    """The end of training at the conducting party; may be seen by it alone.

    Attributes:
        weights: Its own block, (d,).
        scores: The joint ones of the training rows and of the test rows.
        widths: Columns by party, the intercept included.
        rows: By party, before alignment.
        finished: What every party said at the end.
    """

    weights: Floats = field(repr=False)
    scores: tuple[Floats, Floats] = field(repr=False)
    widths: Mapping[str, int]
    rows: Mapping[str, int]
    finished: Mapping[str, pb.Finished]

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values; numbers survive exactly."""
        return {
            "weights": self.weights.tolist(),
            "scores": [part.tolist() for part in self.scores],
            "widths": dict(self.widths),
            "rows": dict(self.rows),
            "finished": {
                name: {"digest": told.digest, "staleness": {str(at): n for at, n in told.staleness.items()}}
                for name, told in self.finished.items()
            },
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Vfb2Trained:
        """Return what was kept.

        Raises:
            StateError: It is damaged.
        """
        try:
            train, test = (np.array(part, dtype=np.float64) for part in kept["scores"])
            finished = {
                name: pb.Finished(
                    digest=told["digest"], staleness={int(at): n for at, n in told["staleness"].items()}
                )
                for name, told in kept["finished"].items()
            }
            weights = np.array(kept["weights"], dtype=np.float64)
            return cls(weights, (train, test), kept["widths"], kept["rows"], finished)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise StateError("what training left is damaged") from exc
