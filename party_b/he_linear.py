"""Party B's role in encrypted linear regression (Yang, Liu, Chen, Tong 2019).

step 2   z = X_B w_B − y;  [[d]] = [[u_A]] ⊕ Enc(z) → A
         [[L]] = [[L_A]] ⊕ Σ z_i ⊗ [[u_A,i]] ⊕ L_B → C,  L_B = ½ Σ z² + (n·l2/2) ‖w_B‖²
step 3   [[X_B' u_A + R_B]] → C
step 4   g_B = X_B' u_A + X_B' z;  w_B ← w_B − η (g_B / n + l2 w_B)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

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


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """B's training rows: features, shape (n, d), the intercept's column of ones included, and labels (n,)."""

    features: Floats
    labels: Floats


@dataclass(slots=True)
class _Round:
    """What B keeps between the steps of one round."""

    number: int
    features: Floats
    residuals: Floats  # z = X_B w_B − y
    gradient: MaskedGradient
    absorbed: int = 0


class ActiveRegression:
    """B's columns, B's labels, B's weights, and the steps of a round in the paper's order."""

    def __init__(
        self,
        rows: LabelledRows,
        schedule: BatchSchedule,
        step: GradientStep,
        cipher: Cipher,
        fixed_point: FixedPoint,
        entropy: Entropy,
    ) -> None:
        self.weights: Floats = np.zeros(rows.features.shape[1])
        self.applied = 0
        self._rows = rows
        self._schedule = schedule
        self._step = step
        self._cipher = cipher
        self._fixed_point = fixed_point
        self._entropy = entropy
        self._round: _Round | None = None

    def begin(self, number: int) -> int:
        """Start round `number`, or start it again; return its number of rows."""
        if number != self.applied + 1:
            raise LocalProtocolError(f"round {number} cannot begin: the last one applied is {self.applied}")
        chosen = self._schedule.rows_of(number)
        features = self._rows.features[chosen]
        residuals = check_scores(features @ self.weights - self._rows.labels[chosen])
        gradient = MaskedGradient(self._cipher, self._fixed_point, self._entropy)
        self._round = _Round(number, features, residuals, gradient)
        return len(residuals)

    def add_residuals(self, scores: Sequence[CipherVector]) -> SealedVector:
        """Step 2: [[d]] of the next rows, from the same rows of [[u_A]] of every passive party.

        The same pass adds these rows to X_B'[[u_A]] and, as one more column, to Σ z_i ⊗ [[u_A,i]]. With
        several passive parties that column counts half (see `encrypted_loss`).

        Raises:
            RemoteProtocolError: The parties' vectors differ in length or are longer than the batch.
        """
        current = self._current()
        lengths = {len(vector) for vector in scores}
        end = current.absorbed + max(lengths)
        if len(lengths) != 1 or end > len(current.residuals):
            raise RemoteProtocolError(
                f"{end} encrypted scores came for a batch of {len(current.residuals)} rows"
            )
        part = slice(current.absorbed, end)
        z = current.residuals[part]
        cross = z if len(scores) == 1 else 0.5 * z
        total = reduce(self._cipher.add, scores)
        current.gradient.absorb(np.column_stack([current.features[part], cross]), total)
        current.absorbed = end
        return self._cipher.seal(total, self._fixed_point.encode(z).tolist())

    def encrypted_loss(self, shares: Sequence[CipherVector]) -> SealedVector:
        """Step 2: [[L]] in sum form, for the key holder.

        With one passive party `shares` is its [[L_A]]. With several it is each one's [[½ w_k·g_k + …]],
        and the sum is ½ Σ d² = Σ_k ½ w_k·(X_k'd) + ½ z·Σ u_k + ½ z·z.
        """
        current = self._complete()
        z = current.residuals
        own = 0.5 * float(z @ z) + len(z) * self._step.penalty(self.weights)
        cross = current.gradient.total()[len(self.weights) :]
        total = reduce(self._cipher.add, shares, cross)
        return self._cipher.seal(total, [self._fixed_point.encode_wide(check_loss_share(own, len(z)))])

    def masked_gradient(self) -> SealedVector:
        """Step 3: [[X_B'u_A + R_B]] for the key holder."""
        return self._complete().gradient.masked(len(self.weights))

    def apply(self, residues: Sequence[int]) -> None:
        """Step 4: unmask, add X_B'z in the clear, and update the weights."""
        current = self._current()
        gradient = current.gradient.unmask(residues) + current.features.T @ current.residuals
        self.weights = self._step.apply(self.weights, gradient, len(current.residuals))
        self.applied, self._round = current.number, None

    def decode_loss(self, residue: int) -> float:
        """Return the sum-form loss that the key holder decrypted."""
        return self._fixed_point.decode_wide(residue, self._cipher.key.modulus)

    def _current(self) -> _Round:
        if self._round is None:
            raise LocalProtocolError(f"no round is open: the last one applied is {self.applied}")
        return self._round

    def _complete(self) -> _Round:
        current = self._current()
        if current.absorbed != len(current.residuals):
            raise RemoteProtocolError(
                f"{current.absorbed} encrypted scores came for a batch of {len(current.residuals)} rows"
            )
        return current
