"""Party B's role in encrypted regression: linear (Yang et al. 2019), logistic (Hardy et al. 2017).

step 2   z = a·X_B p_B − λ·b·y;  [[d]] = [[v_A]] ⊕ Enc(z) → A
         [[L]] = [[L_A]] ⊕ Σ (z_i/a) ⊗ [[v_A,i]] ⊕ L_B → C,  L_B = Σ z²/(2a) + n·(l2/2 ‖w_B‖² + c)
step 3   [[X_B' v_A + R_B]] → C
step 4   g_B = X_B' v_A + X_B' z;  the solver moves; gradient descent, with p_B = w_B and λ = 1:
         w_B ← w_B − η (g_B / n + l2 w_B)

a, b and c are the loss's (common/glm/losses.py): 1, 1 and 0 for the squared loss. v_A = a·X_A p_A.
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
from common.crypto.plan import gradient_packing
from common.data.split import BatchSchedule
from common.errors import LocalProtocolError, RemoteProtocolError
from common.glm.solvers import BlockSolver, SolverState
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
    residuals: Floats  # z = a·X_B p_B − λ·b·y
    gradient: MaskedGradient
    absorbed: int = 0


class ActiveRegression:
    """B's columns, B's labels, B's weights, and the steps of a round in the paper's order."""

    def __init__(
        self,
        rows: LabelledRows,
        schedule: BatchSchedule,
        solver: BlockSolver,
        cipher: Cipher,
        fixed_point: FixedPoint,
        entropy: Entropy,
    ) -> None:
        self.solver = solver
        self.applied = 0
        self._rows = rows
        self._schedule = schedule
        self._cipher = cipher
        self._fixed_point = fixed_point
        self._entropy = entropy
        self._packing = gradient_packing(cipher.key.bits, fixed_point.scale_bits)
        self._round: _Round | None = None

    @property
    def weights(self) -> Floats:
        """Our block of the weights so far, (d,)."""
        return self.solver.weights

    @property
    def batch_rows(self) -> int:
        """How many rows a round has, the first one for all."""
        return len(self._schedule.rows_of(1))

    @property
    def gradient_length(self) -> int:
        """How many ciphertexts of ours the key holder decrypts in a round."""
        return self._packing.plaintexts(len(self.weights))

    def go_on(self, number: int, state: SolverState) -> None:
        """Continue after a round, with the solver as it was then."""
        self.solver.restore(state)
        self.applied, self._round = number, None

    def begin(self, number: int) -> int:
        """Start round `number`, or start it again; return its number of rows."""
        if number != self.applied + 1:
            raise LocalProtocolError(f"round {number} cannot begin: the last one applied is {self.applied}")
        chosen = self._schedule.rows_of(number)
        features = self._rows.features[chosen]
        point, loss = self.solver.point(), self.solver.loss
        labels = point.label_weight * self._rows.labels[chosen]
        residuals = check_scores(loss.residuals(features @ point.block, labels))
        gradient = MaskedGradient(self._cipher, self._fixed_point, self._entropy, self._packing)
        self._round = _Round(number, features, residuals, gradient)
        return len(residuals)

    def add_residuals(self, scores: Sequence[CipherVector]) -> SealedVector:
        """Step 2: [[d]] of the next rows, from the same rows of [[v_A]] of every passive party.

        The same pass adds these rows to X_B'[[v_A]] and, as one more column, to Σ (z_i/a) ⊗ [[v_A,i]]. With
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
        cross = z / (self.solver.loss.curvature * (1 if len(scores) == 1 else 2))
        total = reduce(self._cipher.add, scores)
        current.gradient.absorb(np.column_stack([current.features[part], cross]), total)
        current.absorbed = end
        return self._cipher.seal(total, self._fixed_point.encode(z).tolist())

    def encrypted_loss(self, shares: Sequence[CipherVector]) -> SealedVector:
        """Step 2: [[L]] in sum form, for the key holder.

        With one passive party `shares` is its [[L_A]]. With several it is each one's [[½ w_k·g_k + …]],
        and the sum is Σ d²/(2a) = Σ_k ½ w_k·(X_k'd) + z·Σ v_k/(2a) + z·z/(2a).
        """
        current = self._complete()
        z, solver = current.residuals, self.solver
        own = solver.loss.of_residuals(float(z @ z), len(z)) + len(z) * solver.penalty()
        cross = current.gradient.total()[len(solver.weights) :]
        total = reduce(self._cipher.add, shares, cross)
        return self._cipher.seal(total, [self._fixed_point.encode_wide(check_loss_share(own, len(z)))])

    def masked_gradient(self) -> SealedVector:
        """Step 3: [[X_B'v_A + R_B]] for the key holder."""
        return self._complete().gradient.masked(len(self.weights))

    def apply(self, residues: Sequence[int]) -> None:
        """Step 4: unmask, add X_B'z in the clear, and let the solver move."""
        current = self._current()
        gradient = current.gradient.unmask(residues) + current.features.T @ current.residuals
        self.solver.receive(gradient, len(current.residuals))
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
