"""What was on the wire of one job, and how an attacker looks at ciphertexts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from gmpy2 import mpz, powmod

from common.crypto.paillier import PublicKey
from common.rpc.pb import he_gram_pb2 as gram
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.wiretap import Passage
from tests.attacks.world import Rows

CIPHERTEXT_FIELDS = {
    "EncryptedScores": ("ciphertexts", "loss_share"),
    "EncryptedResiduals": ("ciphertexts",),
    "RoundApplied": ("loss_share",),
    "MaskedGradient": ("ciphertexts",),
    "EncryptedLoss": ("ciphertext",),
}
GRAM_FIELDS = {
    "PackedRows": ("ciphertexts",),
    "MaskedProducts": ("ciphertexts",),
    "BlindedProducts": ("ciphertexts",),
    "Direction": ("block", "complement"),
    "DirectionsApplied": ("loss_share",),
    "MaskedGradient": ("ciphertexts",),
    "EncryptedLoss": ("ciphertext",),
}


@dataclass(frozen=True, repr=False)
class Captured:
    """The wire of a job that ran, seen from every party."""

    wire: dict[str, list[Passage]]
    rows: Rows
    rounds: int

    def messages(self, party: str, direction: str, name: str, peer: str = "") -> list[Any]:
        """Return the messages of one type at one party, parsed from their bytes."""
        return [
            getattr(he if hasattr(he, name) else gram, name).FromString(passage.wire)
            for passage in self.wire[party]
            if passage.direction == direction
            and passage.message_type == f"vfl.v1.{name}"
            and peer in ("", passage.peer)
        ]

    @property
    def key(self) -> PublicKey:
        """The job's public key, as it was on the wire."""
        message = self.messages("coordinator", "sent", "PublicKey")[0]
        return PublicKey.from_bytes(message.modulus, message.noise_generator)

    def cut(self, content: bytes) -> list[int]:
        """Return the ciphertexts of a field."""
        width = self.key.ciphertext_bytes
        return [int.from_bytes(content[at : at + width], "big") for at in range(0, len(content), width)]

    def by_round(
        self, party: str, direction: str, name: str, field: str = "ciphertexts", peer: str = ""
    ) -> dict[int, list[int]]:
        """Return the ciphertexts of one kind at one party, round by round."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for message in self.messages(party, direction, name, peer):
            found[message.turn.round] += self.cut(getattr(message, field))
        return {number: ciphertexts for number, ciphertexts in found.items() if ciphertexts}

    def residues(self, party: str) -> list[list[int]]:
        """Return what C decrypted for a party: a row a round."""
        width = self.key.residue_bytes
        rounds: dict[int, bytes] = {}
        for message in self.messages("coordinator", "sent", "DecryptedGradient", party):
            rounds[message.turn.round] = rounds.get(message.turn.round, b"") + message.residues
        return [
            [int.from_bytes(packed[at : at + width], "big") for at in range(0, len(packed), width)]
            for _, packed in sorted(rounds.items())
        ]

    def sent_ciphertexts(self) -> list[int]:
        """Return every ciphertext that any party sent, in whatever message."""
        found = []
        for party in self.wire:
            for name, fields in CIPHERTEXT_FIELDS.items():
                for message in self.messages(party, "sent", name):
                    for field in fields:
                        found += self.cut(getattr(message, field))
        return found


def noise_of(ciphertext: int, modulus: int) -> int:
    """Return what identifies a ciphertext's noise: (1 + m·N)·r mod N is r mod N, whatever m is.

    So two ciphertexts have a quotient of the form 1 + m·N, which gives m away, exactly if these are equal.
    """
    return ciphertext % modulus


def divided(product: int, own: int, modulus: int) -> int | None:
    """Run the division attack: return m if product/own = 1 + m·N mod N², None if it is not of that form."""
    square = mpz(modulus) * modulus
    quotient = mpz(product) * powmod(own, -1, square) % square
    return None if quotient % modulus != 1 else int((quotient - 1) // modulus)


def product_noise(ciphertexts: list[int], exponents: list[int], modulus: int) -> int:
    """Return the noise that Π cᵢ^xᵢ has, which everybody computes who knows the xᵢ and saw the cᵢ."""
    noise = mpz(1)
    for ciphertext, exponent in zip(ciphertexts, exponents, strict=True):
        noise = noise * powmod(ciphertext % modulus, exponent, modulus) % modulus
    return int(noise)
