"""The key holder's role in Gram rounds: the rules of row-wise rounds, with the lengths that packing leads to.

Before anything is decrypted, each party declares how many ciphertexts it will have decrypted: for each pair
in which it holds the sum, once, and in a round. It declares once, and never more than its columns allow. What
is decrypted is uniform on Z_N in every case: results of rounds under their owner's mask, cross products under
the masker's masks and a uniform one of the holder's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.crypto.cipher import CipherVector
from common.errors import Refused, RemoteProtocolError
from coordinator.he_linear import Agreement, KeyHolder


@dataclass(frozen=True, slots=True)
class PackedLengths:
    """What a party declares, in ciphertexts.

    Attributes:
        result: Of its result of a round.
        products: Of the cross products with each party whose sums it holds.
    """

    result: int
    products: Mapping[str, int]


class GramKeyHolder(KeyHolder):
    """One job's private key, and the rules of its use in Gram rounds."""

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        self._lengths: dict[str, PackedLengths] = {}

    def declare(self, party: str, lengths: PackedLengths) -> None:
        """Note what a party will have decrypted.

        Raises:
            Refused: Not every party has opened the job yet.
            RemoteProtocolError: It is more than its columns allow, or not what it had declared before.
        """
        columns = dict(self.columns)
        if self.missing:
            raise Refused(f"the job is not open yet: {', '.join(self.missing)} is missing")
        if not 1 <= lengths.result <= columns[party]:
            raise RemoteProtocolError(f"{party} declares results of {lengths.result} ciphertexts")
        for masker, length in lengths.products.items():
            # The labels are one more column of the active party.
            most = (columns[party] + 1) * columns.get(masker, 0)
            if masker == party or not 1 <= length <= most:
                raise RemoteProtocolError(f"{party} declares {length} cross products with {masker}")
        if self._lengths.setdefault(party, lengths) != lengths:
            raise RemoteProtocolError(f"{party} declares other lengths than before")

    def gradient_length(self, party: str) -> int:
        """Return how many ciphertexts of a party are decrypted in a round: as many as it declared."""
        declared = self._lengths.get(party)
        return 0 if declared is None else declared.result

    def products_length(self, party: str, masker: str) -> int:
        """Return how many ciphertexts of cross products with a masker are decrypted for a party."""
        declared = self._lengths.get(party)
        return 0 if declared is None else declared.products.get(masker, 0)

    def decrypt_products(self, party: str, masker: str, vector: CipherVector) -> tuple[int, ...]:
        """Decrypt the cross products of a pair for the party that holds the sum, once a job.

        Raises:
            Refused: The party declared another length, or the products were decrypted already.
        """
        expected = self.products_length(party, masker)
        if not expected or len(vector) != expected:
            raise Refused(
                f"{party} declared {expected} ciphertexts of products with {masker} and sent {len(vector)}"
            )
        return self.answer_once((party, f"products with {masker}"), 1, vector)
