"""The keeper's engine in VFB² with `theta: encrypted`: it sends ciphertexts, and decrypts what is masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from common.crypto.cipher import parse_ciphertexts
from common.crypto.entropy import SystemEntropy
from common.crypto.paillier import PublicKey
from common.glm.asynchronous import ReferencePart, Update
from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.compute import InProcessExecutor
from common.runtime.vfb2.guard import (
    DECRYPTING,
    ENCRYPTING,
    ROWS_PER_SEALED,
    SCALE,
    require_guarded,
    residues_to_bytes,
)
from common.runtime.vfb2.journal import Journal
from common.runtime.vfb2.outbound import Outbound
from common.runtime.vfb2.place import Place
from common.runtime.vfb2.wire import sealed_word
from party_b.asynchronous.engine import KeeperEngine
from party_b.vfb2 import Dominator
from party_b.vfb2_guarded import GuardedDominator, OwnKey


class GuardedKeeperEngine(KeeperEngine):
    """The only dominator of its job, with a key pair of this process."""

    def __init__(self, place: Place, role: Dominator, journal: Journal) -> None:
        """Take a role that stands where the journal says, and make a key."""
        bits = place.job.train.theta_key_bits
        own = OwnKey.generate(bits, SCALE, InProcessExecutor(), SystemEntropy())
        self.guarded = GuardedDominator(role, own, {})
        super().__init__(place, role, journal)

    @property
    def public(self) -> PublicKey:
        """The key that a session's parties get."""
        return self.guarded.public

    def open_to(self, columns: Mapping[str, int]) -> None:
        """Take the numbers of columns that the others have declared.

        Raises:
            Refused, NumericError: As `require_guarded`.
        """
        others = {name: count for name, count in columns.items() if name != self.place.party}
        require_guarded(self.place.job, self.place.limits.train, others)
        self.guarded.open_to(others)

    def connect(self, links: Mapping[str, Outbound[pb.DominatorWord]]) -> None:
        """Take this session's streams; a party that came back may have lost its masks."""
        for peer in links:
            self.guarded.renew(peer)
        super().connect(links)

    def word_of(self, update: Update) -> pb.DominatorWord:
        """Return an update with its θ encrypted."""
        with self.watch.counted(ENCRYPTING):
            sealed = self.guarded.sealed(update.number).to_bytes()
        return sealed_word(update, sealed)

    def reference_words(self, parts: Sequence[ReferencePart]) -> list[pb.DominatorWord]:
        """Return θ̃ encrypted, in pieces."""
        thetas = np.concatenate([part.thetas for part in parts])
        epoch = parts[0].epoch
        with self.watch.counted(ENCRYPTING):
            whole = self.guarded.sealed_reference(epoch, thetas).to_bytes()
        size = ROWS_PER_SEALED * self.public.ciphertext_bytes
        return [
            pb.DominatorWord(
                sealed_reference=pb.SealedReference(
                    epoch=epoch,
                    start=at // self.public.ciphertext_bytes,
                    ciphertexts=whole[at : at + size],
                )
            )
            for at in range(0, len(whole), size)
        ]

    def restart_role(self, step: float) -> None:
        """Go back to the start: numbers of updates begin again."""
        self.guarded.forget()
        super().restart_role(step)

    def _hear_back(self, peer: str, word: pb.CollaboratorWord) -> None:
        if word.WhichOneof("word") == "masked":
            self._on_masked(peer, word.masked)
        else:
            super()._hear_back(peer, word)

    def _on_masked(self, peer: str, message: pb.MaskedSums) -> None:
        vector = parse_ciphertexts(message.ciphertexts, self.public, None)
        decrypt = self.guarded.decrypt_reference if message.reference else self.guarded.decrypt
        with self.watch.counted(DECRYPTING):
            residues = residues_to_bytes(decrypt(peer, message.number, vector), self.public)
        answer = pb.UnmaskedSums(reference=message.reference, number=message.number, residues=residues)
        self._links[peer].put(pb.DominatorWord(residues=answer))
