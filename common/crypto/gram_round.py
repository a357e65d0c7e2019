"""Shared cross products times directions: the steps of a Gram round at one party.

At directions v, one block a party, for each party k and every other party l, with shares T_k + T_l' = G_kl:

    l → k      [[v_l]],  [[pack(T_l' v_l)]]
    k          Σ_l pack(T_k) ⊗ [[v_l]] ⊕ [[pack(T_l' v_l)]]  =  [[pack(Σ_l G_kl v_l)]]  →  masked, through C

So k learns the sum over all others, which a row-wise round would have told it as well, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from common.crypto.cipher import CipherVector, SealedVector
from common.crypto.entropy import uniform_masks
from common.crypto.gram_plan import DIRECTION_LIMIT_BITS
from common.crypto.gram_setup import GramTools
from common.errors import LocalProtocolError, NumericError, RemoteProtocolError
from common.types import Floats

Shares: TypeAlias = NDArray[Any]
"""Python integers: one party's additive share of the cross products with another."""


@dataclass(frozen=True, slots=True)
class EncryptedDirection:
    """What one party sends in a round.

    Attributes:
        block: [[v]], (d,); the same to everybody.
        complements: By receiver: [[pack(T' v)]], the sender's share of the receiver's result.
    """

    block: SealedVector
    complements: Mapping[str, SealedVector]


class CrossRound:
    """One party's shares, and the steps of a round with them."""

    def __init__(self, tools: GramTools, outputs: int, peer_outputs: Mapping[str, int]) -> None:
        """Take the role in all rounds of a job.

        Args:
            tools: Of the job.
            outputs: For how many of our columns (the first ones) we need results.
            peer_outputs: The same for every other party.
        """
        self._tools = tools
        self._outputs = outputs
        self._peer_outputs = dict(peer_outputs)
        self._shares: dict[str, NDArray[Any]] = {}
        self._exponents: dict[str, NDArray[Any]] = {}
        self._parts: dict[str, CipherVector] = {}
        self._masks: list[int] = []

    @property
    def length(self) -> int:
        """How many ciphertexts of ours the key holder decrypts in a round."""
        return self._tools.plan.results.plaintexts(self._outputs)

    @property
    def complements_length(self) -> int:
        """How many ciphertexts our complements for all other parties are."""
        return sum(map(self._tools.plan.results.plaintexts, self._peer_outputs.values()))

    @property
    def missing(self) -> list[str]:
        """Peers with whom we share no products yet."""
        return [peer for peer in self._peer_outputs if peer not in self._shares]

    def share_with(self, peer: str, share: NDArray[Any]) -> None:
        """Keep our share T, (d_own, d_peer), of the products with a peer."""
        self._shares[peer] = share
        packing = self._tools.plan.results
        self._exponents[peer] = np.array(
            [packing.pack(column.tolist()) for column in share[: self._outputs].T], dtype=object
        ).reshape(share.shape[1], self.length)

    def share_of(self, peer: str) -> Shares:
        """Return our share T, (d_own, d_peer), of the products with a peer, for our own disk alone.

        Raises:
            LocalProtocolError: There is none yet.
        """
        share = self._shares.get(peer)
        if share is None:
            raise LocalProtocolError(f"no cross products are shared with {peer} yet")
        return share

    def encrypt(self, direction: Floats) -> EncryptedDirection:
        """Return our block of the direction, (d,), in units of scaled columns, for every other party.

        Raises:
            NumericError: An entry is beyond the declared limit.
        """
        if not (np.abs(direction) <= 2.0**DIRECTION_LIMIT_BITS).all():
            raise NumericError(
                f"a weight times its column has left ±2^{DIRECTION_LIMIT_BITS}: the training diverges",
                advice="Lower train.learning_rate, standardize the features, or rescale the label.",
            )
        self._parts = {}
        block = self._tools.fixed_point.encode(direction).astype(object)
        packing = self._tools.plan.results
        complements = {}
        for peer, outputs in self._peer_outputs.items():
            ours = self._shares[peer].T[:outputs] @ block
            complements[peer] = self._tools.cipher.encrypt(packing.pack(ours.tolist()))
        return EncryptedDirection(self._tools.cipher.encrypt(block.tolist()), complements)

    def absorb(self, peer: str, block: CipherVector, complement: CipherVector) -> None:
        """Compute the peer's part of our result from what it sent in this round.

        Raises:
            RemoteProtocolError: Its vectors are not as long as its columns and ours ask for.
        """
        exponents = self._exponents.get(peer)
        if exponents is None:
            raise RemoteProtocolError(f"no cross products are shared with {peer}")
        if (len(block), len(complement)) != exponents.shape:
            raise RemoteProtocolError(
                f"{peer} sent a direction of {len(block)} and {len(complement)} ciphertexts where "
                f"{exponents.shape[0]} and {exponents.shape[1]} were agreed"
            )
        cipher = self._tools.cipher
        self._parts[peer] = cipher.add(cipher.transposed_product(exponents, block), complement)

    def masked(self) -> SealedVector:
        """Return the packed sum over all other parties under uniform masks, for the key holder.

        Raises:
            RemoteProtocolError: A party's direction has not come.
        """
        absent = [peer for peer in self._peer_outputs if peer not in self._parts]
        if absent:
            raise RemoteProtocolError(f"the direction of {', '.join(absent)} has not come in this round")
        cipher = self._tools.cipher
        self._masks = uniform_masks(self._tools.entropy, self.length, cipher.key.modulus)
        return cipher.seal(reduce(cipher.add, self._parts.values()), self._masks)

    def unmask(self, residues: Sequence[int]) -> Floats:
        """Return Σ_l G_kl v_l for our output columns, in units of scaled columns.

        Raises:
            LocalProtocolError: Nothing was masked in this round.
            RemoteProtocolError: The key holder returned more or fewer values than were sent.
            NumericError: A value does not fit its slot.
        """
        if not self._masks:
            raise LocalProtocolError("a result came back before a masked one was sent")
        if len(residues) != len(self._masks):
            raise RemoteProtocolError(
                f"the key holder returned {len(residues)} values for {len(self._masks)}"
            )
        modulus = self._tools.cipher.key.modulus
        clear = [(residue - mask) % modulus for residue, mask in zip(residues, self._masks, strict=True)]
        self._masks, self._parts = [], {}
        values = self._tools.plan.results.unpack(clear, self._outputs, modulus)
        return np.array([self._tools.fixed_point.decode_wide(value, modulus) for value in values])
