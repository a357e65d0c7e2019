"""Masks that cancel by themselves (Bonawitz et al. 2017): one pass, and up to q − 2 parties may collude.

    s_ij = HKDF(X25519(a_i, g^a_j));  mask_i = Σ_{j>i} PRG(s_ij, r) − Σ_{j<i} PRG(s_ij, r)  mod 2^64

with r the number of the request, parties ordered by name. Whatever q − 2 of them know, the mask between the
two others stays unknown, and with it everything but the sum of their scores.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from common.crypto.entropy import Entropy
from common.crypto.secure_sum import WORD_BYTES, Words
from common.errors import LocalProtocolError, RemoteProtocolError

_KEY_BYTES = 32  # X25519 keys, and AES-256
_PURPOSE = "colonnade vfb2 pairwise masks v1"


class AgreementKey:
    """One party's key pair for one session.

    Made anew whenever the party's process starts and never written to disk: a party that lost its memory of
    the requests it answered must not be able to mask other scores with the same words again.
    """

    def __init__(self, entropy: Entropy) -> None:
        self._private = X25519PrivateKey.from_private_bytes(
            entropy.bits(8 * _KEY_BYTES).to_bytes(_KEY_BYTES, "big")
        )

    @property
    def public(self) -> bytes:
        """What the other parties get, 32 bytes."""
        return self._private.public_key().public_bytes_raw()

    def seeds(self, party: str, job: bytes, peers: Mapping[str, bytes]) -> PairwiseSeeds:
        """Agree on a seed with every peer.

        Args:
            party: Our own name.
            job: The digest of the job, so that seeds of one job serve no other.
            peers: Public keys of all other parties by name.

        Raises:
            RemoteProtocolError: A key is not one that X25519 can agree with.
        """
        return PairwiseSeeds(party, {peer: self._shared(peer, key) for peer, key in peers.items()}, job)

    def _shared(self, peer: str, public: bytes) -> bytes:
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:  # a wrong length, or a point of small order
            raise RemoteProtocolError(f"the public key of {peer!r} is not usable") from error


class PairwiseSeeds:
    """What one party shares with each other one; makes masks, shows nothing."""

    def __init__(self, party: str, shared: Mapping[str, bytes], job: bytes) -> None:
        if party in shared or not shared:
            raise LocalProtocolError("pairwise masks need seeds with the other parties, and only those")
        self._party = party
        self._shared = dict(shared)
        self._job = job
        self._keys: dict[tuple[str, str], bytes] = {}

    @property
    def peers(self) -> tuple[str, ...]:
        """The other parties, by name."""
        return tuple(sorted(self._shared))

    def mask(self, root: str, number: int, length: int) -> Words:
        """Return our mask of the root's request `number`; the masks of all parties add up to zero."""
        total = np.zeros(length, dtype=np.uint64)
        for peer in self._shared:
            words = _stream(self._key(peer, root), number, length)
            total = total + words if self._party < peer else total - words
        return total

    def _key(self, peer: str, root: str) -> bytes:
        """Return the key of one root's requests: every active party counts its own from 1."""
        known = self._keys.get((peer, root))
        if known is None:
            names = "|".join([_PURPOSE, *sorted((self._party, peer)), root])
            derive = HKDF(SHA256(), _KEY_BYTES, salt=self._job, info=names.encode())
            known = self._keys[peer, root] = derive.derive(self._shared[peer])
        return known


def _stream(key: bytes, number: int, length: int) -> Words:
    """Return AES-256-CTR words; the request is the upper half of the counter, so no two requests overlap."""
    counter = number.to_bytes(8, "big") + bytes(8)
    encryptor = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
    return np.frombuffer(encryptor.update(bytes(WORD_BYTES * length)), dtype="<u8").astype(np.uint64)
