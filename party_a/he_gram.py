"""A passive party's role in Gram rounds (docs/protocol-he-gram.md).

set-up   [[pack(x_A,i)]] → parties after us;  [[pack(X_A'x_h + r)]] ← rows of B and of parties before us
step 1   v_A = a·p_A;  send [[v_A]] and, for every other party, [[pack(T_A'v_A)]]
step 2   [[Σ_l G_Al v_l + R_A]] → C
step 3   X_A'd = X_A'X_A v_A + Σ_l G_Al v_l;  the solver moves
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from common.crypto.cipher import CipherVector, SealedVector
from common.crypto.gram_round import CrossRound, EncryptedDirection, Shares
from common.crypto.gram_setup import GramTools, Sharing
from common.crypto.limits import check_loss_share
from common.errors import LocalProtocolError, RemoteProtocolError
from common.glm.solvers import BlockSolver, Point, SolverState
from common.types import Floats


@dataclass(frozen=True, slots=True)
class _Applied:
    """What the loss of the last round is computed from."""

    weights: Floats
    penalty: float
    product: Floats


class PassiveGram:
    """A's columns, A's weights, A's shares of the cross products, and the steps in their order."""

    def __init__(
        self, features: Floats, solver: BlockSolver, tools: GramTools, columns: Mapping[str, int], active: str
    ) -> None:
        """Take the role.

        Args:
            features: A's training rows, (n, d).
            solver: Moves A's weights.
            tools: Of the job.
            columns: Of every other party, the active one's without its labels.
            active: The active party's name.
        """
        self.solver = solver
        self.applied = 0
        packed = {party: count + (party == active) for party, count in columns.items()}
        self.sharing = Sharing(tools, features, packed)
        self._tools = tools
        self._gram = features.T @ features
        self._rows = len(features)
        self._cross = CrossRound(tools, features.shape[1], columns)
        self._round = 0
        self._point: Point | None = None
        self._first: Floats | None = None
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

    @property
    def unshared(self) -> list[str]:
        """Parties with whom the cross products are not shared yet."""
        return self._cross.missing

    def share_of(self, party: str) -> Shares:
        """Return our share of the products with a party, (d, d of the other), for our own disk alone."""
        return self._cross.share_of(party)

    def restore_share(self, party: str, share: Shares) -> None:
        """Take our share of the products with a party back from the disk."""
        self._cross.share_with(party, share)

    def state(self) -> Mapping[str, Sequence[float]]:
        """Return what the next round needs besides the shares, to be kept on our own disk."""
        first = () if self._first is None else self._first.tolist()
        return {**self.solver.state(), "first": first}

    def go_on(self, number: int, state: SolverState) -> None:
        """Continue after a round, with the solver as it was then; the shares are restored one by one."""
        self.solver.restore(state)
        self._first = np.array(state["first"], dtype=np.float64)
        self.applied, self._point = number, None

    def masked_products(self, holder: str) -> SealedVector:
        """Set-up, as the one who masks: [[pack(X_A'x_h + r)]]; keep −r as our share."""
        sealed, share = self.sharing.masked_products(holder)
        self._cross.share_with(holder, share)
        return sealed

    def take_products(self, masker: str, residues: Sequence[int]) -> None:
        """Set-up, as the one who holds the sum: keep G + r as our share."""
        self._cross.share_with(masker, self.sharing.open_products(masker, residues))

    def encrypt_direction(self, number: int) -> EncryptedDirection:
        """Step 1: [[v_A]], and for every other party [[pack(T_A'v_A)]].

        A round that was broken off half-way is begun again: nothing of it had been applied.

        Raises:
            RemoteProtocolError: It is not the round after the last one, or the set-up is not complete.
        """
        if number != self.applied + 1:
            raise RemoteProtocolError(f"round {number} cannot begin: the last one applied is {self.applied}")
        if self.unshared:
            raise RemoteProtocolError(f"no cross products are shared with {', '.join(self.unshared)} yet")
        self._round, self._point = number, self.solver.point()
        direction = self.solver.loss.curvature * self._point.block
        return self._cross.encrypt(direction * self.sharing.columns.units)

    def absorb_direction(self, party: str, block: CipherVector, complement: CipherVector) -> None:
        """Step 2, first half: add another party's part, [[G_Al v_l]]."""
        self._current()
        self._cross.absorb(party, block, complement)

    def masked_product(self) -> SealedVector:
        """Step 2, second half: [[Σ_l G_Al v_l + R_A]] for the key holder."""
        self._current()
        return self._cross.masked()

    def apply(self, residues: Sequence[int]) -> None:
        """Step 3: unmask, add the own part in the clear, and let the solver move."""
        point, a = self._current(), self.solver.loss.curvature
        cross = self._cross.unmask(residues) * self.sharing.columns.units
        product = a * (self._gram @ point.block) + cross
        if self._first is None:
            self._first = product
        self._last = _Applied(self.solver.weights, self.solver.penalty(), product)
        self.solver.receive(product, self._rows)
        self.applied, self._point = self._round, None

    def loss_share(self) -> SealedVector:
        """Return [[½ w_A·(g_A + g_A¹) + n·penalty]], our part of the loss before the round's update.

        g_A¹ = −b·X_A'y is the first round's product: in gradient descent all weights begin at zero.
        """
        last = self._last
        if last is None or self._first is None:
            raise LocalProtocolError("no round has been applied yet")
        loss = 0.5 * float(last.weights @ (last.product + self._first)) + self._rows * last.penalty
        encoded = self._tools.fixed_point.encode_wide(check_loss_share(loss, self._rows))
        return self._tools.cipher.encrypt([encoded])

    def _current(self) -> Point:
        if self._point is None:
            raise RemoteProtocolError(f"no round is open: the last one applied is {self.applied}")
        return self._point
