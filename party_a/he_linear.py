"""Party A's role in encrypted linear regression (Yang, Liu, Chen, Tong 2019).

step 1   u_A = X_A w_A;  send [[u_A]] and [[L_A]],  L_A = ½ Σ u_A² + (n·l2/2) ‖w_A‖²
step 3   [[g_A]] = X_A' [[d]];  send [[g_A + R_A]]
step 4   w_A ← w_A − η (g_A / n + l2 w_A)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.crypto.cipher import Cipher, CipherVector, SealedVector
from common.crypto.entropy import Entropy
from common.crypto.fixed_point import FixedPoint
from common.crypto.limits import check_loss_share, check_scores
from common.crypto.masked_gradient import MaskedGradient
from common.data.split import BatchSchedule
from common.errors import LocalProtocolError, RemoteProtocolError
from common.glm.gradient_descent import GradientStep
from common.types import Floats


@dataclass(slots=True)
class _Round:
    """What A keeps between the steps of one round."""

    number: int
    features: Floats
    scores: Floats
    gradient: MaskedGradient
    absorbed: int = 0


class PassiveRegression:
    """A's columns, A's weights, and the steps of a round in the paper's order."""

    def __init__(
        self,
        features: Floats,
        schedule: BatchSchedule,
        step: GradientStep,
        cipher: Cipher,
        fixed_point: FixedPoint,
        entropy: Entropy,
    ) -> None:
        self.weights: Floats = np.zeros(features.shape[1])
        self.applied = 0
        self._features = features
        self._schedule = schedule
        self._step = step
        self._cipher = cipher
        self._fixed_point = fixed_point
        self._entropy = entropy
        self._round: _Round | None = None
        self._previous: tuple[Floats, Floats, int] | None = None

    def begin(self, number: int) -> int:
        """Start round `number`, or start it again; return its number of rows.

        A round that was broken off half-way is simply begun again: nothing of it had been applied.

        Raises:
            RemoteProtocolError: It is not the round after the last one applied.
        """
        if number != self.applied + 1:
            raise RemoteProtocolError(f"round {number} cannot begin: the last one applied is {self.applied}")
        features = self._features[self._schedule.rows_of(number)]
        scores = check_scores(features @ self.weights)
        gradient = MaskedGradient(self._cipher, self._fixed_point, self._entropy)
        self._round = _Round(number, features, scores, gradient)
        return len(scores)

    def encrypt_scores(self, rows: slice) -> SealedVector:
        """Step 1: [[u_A]] of the given rows of the batch."""
        return self._cipher.encrypt(self._fixed_point.encode(self._current().scores[rows]).tolist())

    def loss_share_from_scores(self) -> SealedVector:
        """Step 1: [[L_A]], when A is the only passive party."""
        scores = self._current().scores
        loss = 0.5 * float(scores @ scores) + len(scores) * self._step.penalty(self.weights)
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
        """Step 4: unmask what the key holder decrypted, and update the weights."""
        current = self._current()
        gradient = current.gradient.unmask(residues)
        updated = self._step.apply(self.weights, gradient, len(current.scores))
        self._previous = (self.weights, gradient, len(current.scores))
        self.weights, self.applied, self._round = updated, current.number, None

    def loss_share_from_gradient(self) -> SealedVector:
        """The same loss by ½ Σ d² = Σ_k ½ w_k·(X_k'd) + ½ z·d, which several passive parties can share out.

        A product of two passive parties' scores would need a multiplication under encryption; w_A·g_A does
        not: A knows both. Concerns the weights before the round's update.
        """
        if self._previous is None:
            raise LocalProtocolError("no round has been applied yet")
        weights, gradient, rows = self._previous
        loss = 0.5 * float(weights @ gradient) + rows * self._step.penalty(weights)
        return self._cipher.encrypt([self._fixed_point.encode_wide(check_loss_share(loss, rows))])

    def _current(self) -> _Round:
        if self._round is None:
            raise RemoteProtocolError(f"no round is open: the last one applied is {self.applied}")
        return self._round
