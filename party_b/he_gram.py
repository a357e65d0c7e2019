"""Party B's role in Gram rounds (docs/protocol-he-gram.md). B̃ = [X_B, y]: the labels are B's last column.

set-up   [[pack(b̃_i)]] → every A;  [[pack(X_A'B̃ + r)]] ← A, through C under a mask of B's
step 1   ṽ = (a·p_B, −λ·b);  send [[ṽ]] and, for every A, [[pack(T_B'ṽ)]]
step 2   [[Σ_k G_Bk v_k + R_B]] → C
step 3   X_B'd = X_B'B̃ ṽ + Σ_k G_Bk v_k;  the solver moves
loss     ½ w_B·(Σ_k G_Bk v_k) + z·z/(2a) + n·(penalty + c), and every A's share; only the sum is decrypted
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from common.crypto.cipher import CipherVector, SealedVector
from common.crypto.gram_round import CrossRound, EncryptedDirection, Shares
from common.crypto.gram_setup import GramTools, Sharing
from common.crypto.limits import check_loss_share
from common.errors import LocalProtocolError
from common.glm.solvers import BlockSolver, Point, SolverState
from common.types import Floats
from party_b.he_linear import LabelledRows


@dataclass(frozen=True, slots=True)
class _Applied:
    """B's own part of the loss of the last round, in sum form."""

    loss: float


class ActiveGram:
    """B's columns and labels, B's weights, B's shares of the cross products, and the steps in their order."""

    def __init__(
        self, rows: LabelledRows, solver: BlockSolver, tools: GramTools, columns: Mapping[str, int]
    ) -> None:
        """Take the role; `columns` are those of every passive party."""
        self.solver = solver
        self.applied = 0
        labelled = np.column_stack([rows.features, rows.labels])
        self.sharing = Sharing(tools, labelled, columns)
        self._tools = tools
        self._gram = labelled.T @ labelled
        self.rows = len(labelled)
        self.columns = sum(columns.values()) + labelled.shape[1]
        self._cross = CrossRound(tools, rows.features.shape[1], columns)
        self._point: Point | None = None
        self._last: _Applied | None = None

    @property
    def weights(self) -> Floats:
        """Our block of the weights so far, (d,)."""
        return self.solver.weights

    @property
    def round_length(self) -> int:
        """How many ciphertexts of ours the key holder decrypts in a round."""
        return self._cross.length

    @property
    def complements_length(self) -> int:
        """How many ciphertexts we send besides our block in a round."""
        return self._cross.complements_length

    def take_products(self, masker: str, residues: Sequence[int]) -> None:
        """Set-up: keep G + r, which the key holder decrypted, as our share."""
        self._cross.share_with(masker, self.sharing.open_products(masker, residues))

    def share_of(self, party: str) -> Shares:
        """Return our share of the products with a party, (d + 1, d of the other), for our own disk alone."""
        return self._cross.share_of(party)

    def restore_share(self, party: str, share: Shares) -> None:
        """Take our share of the products with a party back from the disk."""
        self._cross.share_with(party, share)

    def go_on(self, number: int, state: SolverState) -> None:
        """Continue after a round, with the solver as it was then; the shares are restored one by one."""
        self.solver.restore(state)
        self.applied, self._point = number, None

    def encrypt_direction(self, number: int) -> EncryptedDirection:
        """Step 1: [[ṽ]], and for every passive party [[pack(T_B'ṽ)]]."""
        if number != self.applied + 1:
            raise LocalProtocolError(f"round {number} cannot begin: the last one applied is {self.applied}")
        self._point = self.solver.point()
        return self._cross.encrypt(self._direction(self._point) * self.sharing.columns.units)

    def absorb_direction(self, party: str, block: CipherVector, complement: CipherVector) -> None:
        """Step 2, first half: add a passive party's part, [[G_Bk v_k]]."""
        self._current()
        self._cross.absorb(party, block, complement)

    def masked_product(self) -> SealedVector:
        """Step 2, second half: [[Σ_k G_Bk v_k + R_B]] for the key holder."""
        self._current()
        return self._cross.masked()

    def apply(self, residues: Sequence[int]) -> None:
        """Step 3: unmask, add the own part in the clear, and let the solver move."""
        point, units = self._current(), self.sharing.columns.units
        cross = self._cross.unmask(residues) * units[:-1]
        direction = self._direction(point)
        image = self._gram @ direction  # B̃'z
        loss, weights = self.solver.loss, self.solver.weights
        own = loss.of_residuals(float(direction @ image), self.rows) + self.rows * self.solver.penalty()
        self._last = _Applied(own + 0.5 * float(weights @ cross))
        self.solver.receive(image[:-1] + cross, self.rows)
        self.applied, self._point = self.applied + 1, None

    def encrypted_loss(self, shares: Sequence[CipherVector]) -> SealedVector:
        """Return [[L]] of the last round in sum form, for the key holder: our part and every A's share."""
        if self._last is None:
            raise LocalProtocolError("no round has been applied yet")
        encoded = self._tools.fixed_point.encode_wide(check_loss_share(self._last.loss, self.rows))
        return self._tools.cipher.seal(reduce(self._tools.cipher.add, shares), [encoded])

    def decode_loss(self, residue: int) -> float:
        """Return the sum-form loss that the key holder decrypted."""
        return self._tools.fixed_point.decode_wide(residue, self._tools.cipher.key.modulus)

    def _direction(self, point: Point) -> Floats:
        """Return ṽ = (a·p_B, −λ·b), so that B̃ ṽ is B's part of d."""
        loss = self.solver.loss
        return np.append(loss.curvature * point.block, -point.label_weight * loss.label_factor)

    def _current(self) -> Point:
        if self._point is None:
            raise LocalProtocolError(f"no round is open: the last one applied is {self.applied}")
        return self._point
