"""A collaborator's role in VFB² where θ stays with its dominator: `theta: encrypted` (PROTOCOLS 2, Leaks).

step 1   receive [[θ_i − t_i]] and the row numbers, under the dominator's own key
step 2   [[g]] = X_l'[[θ − t]], and [[g + R]] with R uniform on Z_N → the dominator, who decrypts
step 3   receive g + R, take R off;  v = g/b + what the update rule adds + ∇g(w_l),  w_l ← w_l − η v

t is what the update rule subtracts: nothing (SGD), θ̃ (SVRG), a (SAGA). Only the dominator knows it. With
SVRG the same steps over all rows give μ_l once an epoch. Scores are summed as in plain VFB² (`vfb2.py`).

Active parties play this role, too, for the updates of others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TypeAlias

import numpy as np

from common.crypto.cipher import Cipher, CipherVector, SealedVector
from common.crypto.entropy import Entropy
from common.crypto.fixed_point import FixedPoint
from common.crypto.limits import check_features
from common.crypto.masked_gradient import MaskedGradient
from common.crypto.paillier import PublicKey
from common.errors import RemoteProtocolError
from common.glm.asynchronous import UnseenUpdate
from common.glm.collaboration import Collaboration
from common.types import Floats, Ints

Residues: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GuardTools:
    """What hiding needs.

    Attributes:
        fixed_point: The job's one scale.
        entropy: Draws masks.
        cipher: Makes the arithmetic under a dominator's public key.
        window: Updates of a dominator that may wait for their residues at a time: `max_staleness`.
    """

    fixed_point: FixedPoint
    entropy: Entropy
    cipher: Callable[[PublicKey], Cipher]
    window: int


@dataclass(slots=True)
class _Waiting:
    """A masked gradient on its way; kept as it was sent, because a mask serves one vector."""

    gradient: MaskedGradient
    sealed: SealedVector


@dataclass(slots=True)
class _Referring:
    """Σ θ̃_j x_j over the rows that have come, at the end of an epoch."""

    epoch: int
    gradient: MaskedGradient
    rows: int = 0
    sealed: SealedVector | None = None


class GuardedCollaborator:
    """Our columns and our block, and updates of which we never see θ."""

    def __init__(self, collaboration: Collaboration, tools: GuardTools) -> None:
        self.collaboration = collaboration
        self._tools = tools
        self._ciphers: dict[str, Cipher] = {}
        self._waiting: dict[str, dict[int, _Waiting]] = {}
        self._referring: _Referring | None = None
        self._lock = Lock()

    def use_key(self, dominator: str, key: PublicKey) -> None:
        """Take a dominator's public key; a new one, after its restart, makes what was on its way void."""
        with self._lock:
            known = self._ciphers.get(dominator)
            if known is None or known.key != key:
                self._ciphers[dominator] = self._tools.cipher(key)
                self._waiting[dominator] = {}
                self._referring = None

    def forget(self) -> None:
        """Let go of what is on its way: training begins again from its start, and numbers with it."""
        with self._lock:
            self._waiting = {dominator: {} for dominator in self._waiting}
            self._referring = None

    def masked(self, update: UnseenUpdate, thetas: CipherVector) -> SealedVector:
        """Step 2: return [[X_l'θ + R]], d ciphertexts; the same ones if it was asked before.

        Raises:
            RemoteProtocolError: Not one ciphertext a row, unknown rows, or too many updates on their way.
        """
        features = self._columns(update.rows)
        if len(thetas) != len(update.rows):
            raise RemoteProtocolError(
                f"{len(thetas)} ciphertexts came for a batch of {len(update.rows)} rows"
            )
        with self._lock:
            waiting = self._of(update.dominator)
            if update.number in waiting:
                return waiting[update.number].sealed
            if len(waiting) >= self._tools.window:
                raise RemoteProtocolError(f"more than {self._tools.window} updates wait to be decrypted")
            gradient = self._gradient(update.dominator)
            gradient.absorb(features, thetas)
            sealed = gradient.masked(features.shape[1])
            waiting[update.number] = _Waiting(gradient, sealed)
        return sealed

    def apply(self, update: UnseenUpdate, residues: Residues) -> Floats:
        """Step 3: take the mask off, move our block, and return Σ θ_i x_i, (d,), for our own journal.

        Raises:
            RemoteProtocolError: Nothing of ours was on its way, or the number of residues is wrong.
        """
        with self._lock:
            waiting = self._of(update.dominator).pop(update.number, None)
        if waiting is None:
            raise RemoteProtocolError(f"no masked gradient of update {update.number} is on its way")
        sums = waiting.gradient.unmask(residues)
        self.collaboration.apply_sums(update, sums)
        return sums

    def absorb_reference(self, dominator: str, epoch: int, start: int, thetas: CipherVector) -> None:
        """SVRG: add the next rows' x_j[[θ̃_j]]; the same rows again change nothing.

        Raises:
            RemoteProtocolError: They leave a gap, or go beyond our rows.
        """
        end, total = start + len(thetas), self.collaboration.rows
        with self._lock:
            if self._referring is None or self._referring.epoch != epoch:
                self._referring = _Referring(epoch, self._gradient(dominator))
            referring = self._referring
            if not 0 <= start <= referring.rows or end > total:
                raise RemoteProtocolError(f"derivatives of rows {start} … {end} came after {referring.rows}")
            if end > referring.rows:
                rows = np.arange(referring.rows, end, dtype=np.int64)
                referring.gradient.absorb(self._columns(rows), thetas[referring.rows - start :])
                referring.rows = end

    def masked_reference(self) -> SealedVector:
        """SVRG: return [[Σ_j θ̃_j x_j + R]] over all rows; the same ciphertexts if it was asked before.

        Raises:
            RemoteProtocolError: Rows are missing.
        """
        with self._lock:
            referring = self._complete()
            if referring.sealed is None:
                referring.sealed = referring.gradient.masked(self.collaboration.block.features.shape[1])
            return referring.sealed

    def refer(self, residues: Residues) -> None:
        """SVRG: take the mask off, and μ_l is ours."""
        with self._lock:
            referring, self._referring = self._complete(), None
        self.collaboration.refer_to_sums(referring.epoch, referring.gradient.unmask(residues))

    def _complete(self) -> _Referring:
        referring, total = self._referring, self.collaboration.rows
        if referring is None or referring.rows != total:
            raise RemoteProtocolError(f"derivatives of all {total} rows must come before they are decrypted")
        return referring

    def _columns(self, rows: Ints) -> Floats:
        block = self.collaboration.block
        if rows.size and not 0 <= int(rows.min()) <= int(rows.max()) < self.collaboration.rows:
            raise RemoteProtocolError(f"rows are named that are not among {self.collaboration.rows}")
        return check_features(block.features.dense(rows), block.names)

    def _of(self, dominator: str) -> dict[int, _Waiting]:
        if dominator not in self._waiting:
            raise RemoteProtocolError(f"{dominator!r} has shown no public key")
        return self._waiting[dominator]

    def _gradient(self, dominator: str) -> MaskedGradient:
        self._of(dominator)
        return MaskedGradient(self._ciphers[dominator], self._tools.fixed_point, self._tools.entropy)
