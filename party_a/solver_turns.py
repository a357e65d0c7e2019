"""What a passive party's solver exchanges between rounds; nothing, for gradient descent."""

from __future__ import annotations

import math

from common.errors import RemoteProtocolError
from common.glm.solvers import BlockSolver, ConjugateBlock
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb


class SolverTurns:
    """Holds conjugate gradients to their order: product, step, turn, and the next product."""

    def __init__(self, solver: BlockSolver) -> None:
        self._conjugate = solver if isinstance(solver, ConjugateBlock) else None
        self._turned = 1
        self._stepped: he.StepTaken | None = None
        self._asked: he.StepRequest | None = None

    def begin(self, number: int, mixing: float, scale: float) -> None:
        """Take β and σ for a round's direction; asked again for the same round, nothing happens.

        Raises:
            RemoteProtocolError: The step of the round before has not been taken, or they are no such numbers.
        """
        if self._conjugate is None or number == self._turned:
            return
        stepped = 0 if self._stepped is None else self._stepped.turn.round
        if number != self._turned + 1 or stepped != self._turned:
            raise RemoteProtocolError(
                f"round {number} of conjugate gradients was asked for after a step of round {stepped}"
            )
        if not (math.isfinite(mixing) and mixing >= 0 and math.isfinite(scale) and scale > 0):
            raise RemoteProtocolError("the next direction's numbers are not finite, or have the wrong sign")
        self._conjugate.turn(mixing, scale)
        self._turned = number

    def go_on(self, turn: pb.Turn) -> None:
        """Continue after the round of a turn, whose step had been taken."""
        self._turned = max(1, turn.round)
        self._stepped = he.StepTaken(turn=turn) if turn.round else None
        self._asked = None

    def curvature(self) -> he.SolverPart | None:
        """Return our part of p·q of the round that was just applied, None for gradient descent."""
        return None if self._conjugate is None else he.SolverPart(value=self._conjugate.curvature_part())

    def take_step(self, request: he.StepRequest) -> he.StepTaken:
        """Move along the direction; the same request again gets the same answer.

        Raises:
            RemoteProtocolError: The job has no such steps, the step is no number, or another one was taken.
        """
        if self._conjugate is None:
            raise RemoteProtocolError("a step was asked for in a job that does not use conjugate gradients")
        if self._stepped is not None and request.turn.round <= self._stepped.turn.round:
            if request == self._asked:
                return self._stepped
            raise RemoteProtocolError("a step was asked for after the round's step had been taken")
        if not math.isfinite(request.step):
            raise RemoteProtocolError("the step is not a finite number")
        residual = self._conjugate.advance(request.step)
        self._asked = request
        self._stepped = he.StepTaken(turn=request.turn, residual=residual)
        return self._stepped
