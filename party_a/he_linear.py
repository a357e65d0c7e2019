"""Party A's role in encrypted regression: linear (Yang et al. 2019), logistic (Hardy et al. 2017).

step 1   v_A = a·X_A p_A;  send [[v_A]] and [[L_A]],  L_A = Σ v_A²/(2a) + (n·l2/2) ‖w_A‖²
step 3   [[g_A]] = X_A' [[d]];  send [[g_A + R_A]]
step 4   the solver moves; gradient descent, with p_A = w_A:  w_A ← w_A − η (g_A / n + l2 w_A)

a is the loss's curvature, 1 for the squared loss (common/glm/losses.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.crypto.cipher import Cipher, CipherVector, SealedVector
from common.crypto.entropy import Entropy
from common.crypto.fixed_point import FixedPoint
from common.crypto.limits import check_loss_share, check_scores
from common.crypto.masked_gradient import MaskedGradient
from common.crypto.plan import gradient_packing
from common.data.split import BatchSchedule
from common.errors import LocalProtocolError, RemoteProtocolError
from common.glm.solvers import BlockSolver, SolverState
from common.types import Floats


@dataclass(slots=True)
class _Round:
    """What A keeps between the steps of one round."""

    number: int
    features: Floats
    scores: Floats  # v_A = a·X_A p_A
    gradient: MaskedGradient
    absorbed: int = 0


class PassiveRegression:
    """A's columns, A's weights, and the steps of a round in the paper's order."""

    def __init__(
        self,
        features: Floats,
        schedule: BatchSchedule,
        solver: BlockSolver,
        cipher: Cipher,
        fixed_point: FixedPoint,
        entropy: Entropy,
    ) -> None:
        self.solver = solver
        self.applied = 0
        self._features = features
        self._schedule = schedule
        self._cipher = cipher
        self._fixed_point = fixed_point
        self._entropy = entropy
        self._packing = gradient_packing(cipher.key.bits, fixed_point.scale_bits)
        self._round: _Round | None = None
        self._previous: tuple[Floats, float, Floats, int] | None = None

    @property
    def weights(self) -> Floats:
        """Our block of the weights so far, (d,)."""
        return self.solver.weights

    @property
    def gradient_length(self) -> int:
        """How many ciphertexts of ours the key holder decrypts in a round."""
        return self._packing.plaintexts(len(self.weights))

    def state(self) -> SolverState:
        """Return what the next round needs, to be kept on our own disk."""
        return self.solver.state()

    def go_on(self, number: int, state: SolverState) -> None:
        """Continue after a round, with the solver as it was then."""
        self.solver.restore(state)
        self.applied, self._round = number, None

    def begin(self, number: int) -> int:
        """Start round `number`, or start it again; return its number of rows.

        A round that was broken off half-way is simply begun again: nothing of it had been applied.

        Raises:
            RemoteProtocolError: It is not the round after the last one applied.
        """
        if number != self.applied + 1:
            raise RemoteProtocolError(f"round {number} cannot begin: the last one applied is {self.applied}")
        features = self._features[self._schedule.rows_of(number)]
        scores = check_scores(self.solver.loss.curvature * (features @ self.solver.point().block))
        gradient = MaskedGradient(self._cipher, self._fixed_point, self._entropy, self._packing)
        self._round = _Round(number, features, scores, gradient)
        return len(scores)

    def encrypt_scores(self, rows: slice) -> SealedVector:
        """Step 1: [[v_A]] of the given rows of the batch."""
        return self._cipher.encrypt(self._fixed_point.encode(self._current().scores[rows]).tolist())

    def loss_share_from_scores(self) -> SealedVector:
        """Step 1: [[L_A]], when A is the only passive party."""
        scores = self._current().scores
        square = float(scores @ scores) / (2 * self.solver.loss.curvature)
        loss = square + len(scores) * self.solver.penalty()
        return self._cipher.encrypt([self._fixed_point.encode_wide(check_loss_share(loss, len(scores)))])

    def absorb_residuals(self, residuals: CipherVector) -> None:
        """Step 3, first half: add the next rows' X_A'[[d]].

        Raises:
            RemoteProtocolError: More residuals than the batch has rows.
        """
        current = self._current()
        end = current.absorbed + len(residuals)
        if end > len(current.scores):
            raise RemoteProtocolError(f"{end} residuals came for a batch of {len(current.scores)} rows")
        current.gradient.absorb(current.features[current.absorbed : end], residuals)
        current.absorbed = end

    def masked_gradient(self) -> SealedVector:
        """Step 3, second half: [[g_A + R_A]] for the key holder.

        Raises:
            RemoteProtocolError: Residuals of some rows are missing.
        """
        current = self._current()
        if current.absorbed != len(current.scores):
            raise RemoteProtocolError(
                f"{current.absorbed} residuals came for a batch of {len(current.scores)} rows"
            )
        return current.gradient.masked(len(self.weights))

    def apply(self, residues: Sequence[int]) -> None:
        """Step 4: unmask what the key holder decrypted, and let the solver move."""
        current, solver = self._current(), self.solver
        gradient, rows = current.gradient.unmask(residues), len(current.scores)
        self._previous = (solver.weights, solver.penalty(), gradient, rows)
        solver.receive(gradient, rows)
        self.applied, self._round = current.number, None

    def loss_share_from_gradient(self) -> SealedVector:
        """The same loss by Σ d²/(2a) = Σ_k ½ w_k·(X_k'd) + z·d/(2a), which several parties can share out.

        A product of two passive parties' scores would need a multiplication under encryption; w_A·g_A does
        not: A knows both. Concerns the weights before the round's update.
        """
        if self._previous is None:
            raise LocalProtocolError("no round has been applied yet")
        weights, penalty, gradient, rows = self._previous
        loss = 0.5 * float(weights @ gradient) + rows * penalty
        return self._cipher.encrypt([self._fixed_point.encode_wide(check_loss_share(loss, rows))])

    def _current(self) -> _Round:
        if self._round is None:
            raise RemoteProtocolError(f"no round is open: the last one applied is {self.applied}")
        return self._round
