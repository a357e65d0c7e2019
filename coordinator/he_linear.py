"""The key holder's role in encrypted linear regression: what it decrypts, and what it refuses (rule 1.2.6).

It decrypts for a party only vectors of the length that the party declared when it opened the job, only once a
round, only within the agreed number of rounds, and only after every party of the job has opened it. A second
request for the same round gets the kept answer if it is the same request, and is refused if it is not.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from common.crypto.cipher import CipherVector
from common.crypto.private_key import PrivateKey
from common.errors import LocalProtocolError, Refused, RemoteProtocolError


@dataclass(frozen=True, slots=True)
class Agreement:
    """What the parties agreed on before the first round.

    Attributes:
        active: The party that may have the loss decrypted.
        passive: The passive parties.
        max_rounds: Rounds that will be served at most.
        loss_every: The loss is decrypted in rounds 1, 1 + k, 1 + 2k, …; never if 0.
        gradient_slots: Entries of a gradient that come in one ciphertext.
        first_round: In a job that was opened again: the last round of earlier attempts, which may have been
            broken off. What is decrypted over all attempts stays bounded: one round more for each.
    """

    active: str
    passive: tuple[str, ...]
    max_rounds: int
    loss_every: int
    first_round: int = 1
    gradient_slots: int = 1

    def has_loss(self, round_number: int) -> bool:
        """Whether the loss of this round may be decrypted."""
        return self.loss_every > 0 and (round_number - 1) % self.loss_every == 0


@dataclass(slots=True)
class _Answers:
    """The last round answered to one party for one purpose, kept so that a retry is harmless."""

    round: int = 0
    request_digest: bytes = b""
    residues: tuple[int, ...] = field(default=(), repr=False)


class KeyHolder:
    """One job's private key and the rules of its use. Lives in memory only."""

    def __init__(self, agreement: Agreement) -> None:
        if agreement.gradient_slots < 1:
            raise LocalProtocolError("a ciphertext holds one entry of a gradient at least")
        self._agreement = agreement
        self._columns: dict[str, int] = {}
        self._key: PrivateKey | None = None
        self._answers: dict[tuple[str, str], _Answers] = {}
        # The last round that the disk knows to have been decrypted.
        self.noted = agreement.first_round if agreement.first_round > 1 else 0
        # Two requests at the same moment must not both be the first of their round.
        self._turnstile = threading.Lock()

    @property
    def columns(self) -> Mapping[str, int]:
        """Declared vector lengths of the parties that have opened the job."""
        return dict(self._columns)

    @property
    def has_key(self) -> bool:
        """Whether the job's key pair has been made."""
        return self._key is not None

    @property
    def missing(self) -> list[str]:
        """Parties that have not opened the job yet."""
        members = (self._agreement.active, *self._agreement.passive)
        return [party for party in members if party not in self._columns]

    def open(self, party: str, columns: int) -> None:
        """Note that a party has opened the job, and how long its gradients will be.

        Nothing is decrypted for a party that has declared 0 columns, as it does until its rows are aligned.

        Raises:
            RemoteProtocolError: Another length was declared before.
        """
        if not self._columns.get(party):
            self._columns[party] = columns
        if columns not in (0, self._columns[party]):
            raise RemoteProtocolError(
                f"{party} declares {columns} columns, after it had declared {self._columns[party]}"
            )

    def use_key(self, key: PrivateKey) -> None:
        """Take the job's key pair; it is made once and never replaced."""
        if self._key is not None:
            raise RemoteProtocolError("the job has a key already")
        self._key = key

    @property
    def key(self) -> PrivateKey:
        """The job's key pair.

        Raises:
            Refused: Not every party has opened the job yet.
        """
        if self.missing or self._key is None:
            raise Refused(f"the job is not open yet: {', '.join(self.missing) or 'the key'} is missing")
        return self._key

    def gradient_length(self, party: str) -> int:
        """Return how many ciphertexts of a party are decrypted in a round: as many as its columns fill."""
        return -(-self._columns.get(party, 0) // self._agreement.gradient_slots)

    def require_length(self, party: str, length: int) -> None:
        """Refuse a vector as soon as it is longer than the party declared."""
        declared = self.gradient_length(party)
        if length > declared:
            raise Refused(f"{party} declared vectors of length {declared} and sent more")

    def decrypt_gradient(self, party: str, round_number: int, vector: CipherVector) -> tuple[int, ...]:
        """Decrypt a party's masked gradient; uniform residues to us, a gradient to the party alone."""
        expected = self.gradient_length(party)
        if len(vector) != expected:
            raise Refused(f"{party} declared vectors of length {expected} and sent one of {len(vector)}")
        return self._answer(party, "gradient", round_number, vector)

    def decrypt_loss(self, party: str, round_number: int, vector: CipherVector) -> int:
        """Decrypt the round's loss for the active party, in rounds whose loss was agreed on."""
        if party != self._agreement.active:
            raise Refused(f"only {self._agreement.active} may have the loss decrypted, not {party}")
        if not self._agreement.has_loss(round_number):
            raise Refused(f"the loss of round {round_number} is not among those that the job asks for")
        if len(vector) != 1:
            raise Refused(f"a loss is one ciphertext, not {len(vector)}")
        return self._answer(party, "loss", round_number, vector)[0]

    def _answer(self, party: str, purpose: str, round_number: int, vector: CipherVector) -> tuple[int, ...]:
        if not 1 <= round_number <= self._agreement.max_rounds:
            raise Refused(f"round {round_number} is outside the agreed {self._agreement.max_rounds} rounds")
        if round_number < self._agreement.first_round:
            raise Refused(
                f"round {round_number} was answered in an earlier attempt, which came as far as round "
                f"{self._agreement.first_round}"
            )
        return self.answer_once((party, purpose), round_number, vector)

    def answer_once(self, asked: tuple[str, str], round_number: int, vector: CipherVector) -> tuple[int, ...]:
        """Decrypt for a party and a purpose, once a round; the same request again gets the kept answer.

        Raises:
            Refused: The job is not open yet, or the round was answered with another vector.
        """
        key = self.key
        with self._turnstile:
            return self._answered(key, self._answers.setdefault(asked, _Answers()), round_number, vector)

    def _answered(
        self, key: PrivateKey, last: _Answers, round_number: int, vector: CipherVector
    ) -> tuple[int, ...]:
        ciphertexts = vector.ciphertexts()
        digest = hashlib.sha256(repr(ciphertexts).encode()).digest()
        if round_number == last.round and digest == last.request_digest:
            return last.residues
        if round_number <= last.round:
            raise Refused(f"round {round_number} was already answered: a vector is decrypted once")
        residues = key.decrypt_all(ciphertexts)
        last.round, last.request_digest, last.residues = round_number, digest, residues
        return residues
