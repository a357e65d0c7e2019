"""A dominator's role in VFB² where θ stays with it: `theta: encrypted` (PROTOCOLS 2, Leaks).

step 1   θ as in plain VFB² (`vfb2.py`);  [[θ_i − t_i]] under our own key → all others, t by our update rule
step 2   receive [[X_l'(θ − t) + R_l]] of each, decrypt: uniform residues to us
step 3   residues back to the one who masked them; our own block moves by θ itself

The key lives in this process. After a restart there is another one, and what was on its way is void.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeAlias

import numpy as np

from common.crypto.cipher import Cipher, CipherVector, PaillierCipher, SealedVector
from common.crypto.entropy import Entropy
from common.crypto.fixed_point import FixedPoint
from common.crypto.limits import check_scores
from common.crypto.paillier import PublicKey
from common.crypto.private_key import PrivateKey
from common.errors import LocalProtocolError, Refused
from common.glm.asynchronous import ScoreRequest, UnseenUpdate, Update
from common.types import Floats
from party_b.vfb2 import Dominator

Residues: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OwnKey:
    """A key pair that one dominator made for itself, and the arithmetic under it.

    Attributes:
        private: Never leaves.
        cipher: Under the public key.
        fixed_point: The job's one scale.
    """

    private: PrivateKey = field(repr=False)
    cipher: Cipher
    fixed_point: FixedPoint

    @classmethod
    def generate(cls, key_bits: int, fixed_point: FixedPoint, executor: Executor, entropy: Entropy) -> OwnKey:
        """Make a key of this process."""
        private = PrivateKey.generate(key_bits, entropy)
        return cls(private, PaillierCipher(private.public, executor, entropy), fixed_point)


@dataclass(slots=True)
class _Answer:
    """What was decrypted for one party, kept so that a retry is harmless."""

    digest: bytes
    residues: Residues = field(repr=False)


class GuardedDominator:
    """A dominator whose θ nobody else sees: it sends ciphertexts, and decrypts what is masked."""

    def __init__(self, dominator: Dominator, own: OwnKey, columns: Mapping[str, int]) -> None:
        """Guard a dominator, whose updates must be of the kind `UnseenUpdate`.

        Args:
            dominator: The plain role.
            own: Our key.
            columns: Of every other party, as it declared them when it opened the job.
        """
        self.dominator = dominator
        self._own = own
        self._columns = dict(columns)
        self._sealed: dict[int, SealedVector] = {}
        self._reference: tuple[int, SealedVector] | None = None
        self._answers: dict[tuple[str, str, int], list[_Answer]] = {}
        self._renewed: set[tuple[str, str, int]] = set()  # of whom may get one more vector
        self._lock = Lock()

    @property
    def public(self) -> PublicKey:
        """What the others encrypt nothing with, but compute under."""
        return self._own.private.public

    def open_to(self, columns: Mapping[str, int]) -> None:
        """Take the numbers of columns that the others declared."""
        self._columns = dict(columns)

    def forget(self) -> None:
        """Let go of everything: training begins again from its start, and numbers with it."""
        with self._lock:
            self._sealed.clear()
            self._answers.clear()
            self._renewed.clear()
            self._reference = None

    def dominate(self, request: ScoreRequest) -> Update:
        """Step 1: compute θ and encrypt what the others get (`sealed`); apply the update afterwards.

        Raises:
            As `Dominator.dominate`; NumericError: A derivative is beyond what was proved not to overflow.
        """
        update = self.dominator.dominate(request)
        self._seal(update)
        return update

    def readopt(self, update: Update) -> None:
        """Take over an update from our log after a restart, as `Dominator.readopt`, and encrypt it anew."""
        self._seal(update)
        self.dominator.readopt(update)

    def sealed(self, number: int) -> SealedVector:
        """Return what all others get of an update that not all of them have written down.

        Raises:
            Refused: There is no such update any more.
        """
        with self._lock:
            self._forget()
            if number in self._sealed:
                return self._sealed[number]
        update = self.dominator.outbox.kept(number)
        if update is None:
            raise Refused(f"update {number} is not on its way")
        self._seal(update)
        return self._sealed[number]

    def decrypt(self, party: str, number: int, vector: CipherVector) -> Residues:
        """Step 2: decrypt a party's masked gradient of an update, once; asked again, the same answer.

        Raises:
            Refused: Another length than the party declared, another vector, or no update that it waits for.
        """
        self.sealed(number)
        return self._decrypt(party, "update", number, vector)

    def reference(self) -> SealedVector:
        """SVRG: return [[θ̃_j]] of all rows at the end of an epoch; a stream cuts it into parts."""
        (whole,) = self.dominator.reference(self.dominator.collaboration.rows)
        return self.sealed_reference(whole.epoch, whole.thetas)

    def sealed_reference(self, epoch: int, thetas: Floats) -> SealedVector:
        """SVRG: return [[θ̃_j]] of all rows, (n,); the same ciphertexts if it was asked before."""
        with self._lock:
            if self._reference is None or self._reference[0] != epoch:
                self._reference = epoch, self._encrypted(thetas)
            return self._reference[1]

    def decrypt_reference(self, party: str, epoch: int, vector: CipherVector) -> Residues:
        """SVRG: decrypt a party's masked Σ_j θ̃_j x_j, once an epoch.

        Raises:
            Refused: Another length than the party declared, another vector, or another epoch.
        """
        if self._reference is None or self._reference[0] != epoch:
            raise Refused(f"there is no snapshot at the end of epoch {epoch} to be decrypted for")
        return self._decrypt(party, "reference", epoch, vector)

    def renew(self, party: str) -> None:
        """Decrypt once more for a party that may have come back after a restart, without its masks.

        It can get a second vector of what is on its way, and no more however often it comes back: the rank
        rule leaves room for two.
        """
        with self._lock:
            self._renewed.update(asked for asked in self._answers if asked[0] == party)

    def _seal(self, update: Update) -> None:
        if not isinstance(update, UnseenUpdate):
            raise LocalProtocolError(
                "the updates of a guarded dominator must not show θ in their fingerprints"
            )
        tables = self.dominator.collaboration.block.rule.tables()
        # SVRG's θ̃ or SAGA's a, as it is before our own block takes the update.
        subtracted = tables.get("reference", tables.get("table"))
        known = np.zeros(len(update.rows)) if subtracted is None else subtracted[update.rows]
        sealed = self._encrypted(update.thetas - known)
        with self._lock:
            self._sealed[update.number] = sealed
            self._forget()

    def _encrypted(self, values: Floats) -> SealedVector:
        encoded = self._own.fixed_point.encode(check_scores(values))
        return self._own.cipher.encrypt(encoded.tolist())

    def _forget(self) -> None:
        """Drop what every party's disk shows."""
        oldest = self.dominator.outbox.oldest_kept
        for number in [number for number in self._sealed if number < oldest]:
            del self._sealed[number]
        for asked in [asked for asked in self._answers if asked[1] == "update" and asked[2] < oldest]:
            del self._answers[asked]
        self._renewed &= self._answers.keys()

    def _decrypt(self, party: str, purpose: str, number: int, vector: CipherVector) -> Residues:
        declared = self._columns.get(party)
        if declared is None or len(vector) != declared:
            raise Refused(f"{party} declared vectors of length {declared} and sent one of {len(vector)}")
        ciphertexts = vector.ciphertexts()
        digest = hashlib.sha256(repr(ciphertexts).encode()).digest()
        asked = party, purpose, number
        with self._lock:
            answers = self._answers.setdefault(asked, [])
            known = next((answer for answer in answers if answer.digest == digest), None)
            if known is None and len(answers) > (asked in self._renewed):
                raise Refused(
                    f"{purpose} {number} was already decrypted for {party}: a vector is decrypted once"
                )
            if known is None:
                known = _Answer(digest, self._own.private.decrypt_all(ciphertexts))
                answers.append(known)
        return known.residues
