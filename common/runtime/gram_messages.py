"""Gram rounds as messages: who holds what with whom, and vectors in chunks (protos/vfl/v1/he_gram.proto)."""

from __future__ import annotations

from collections.abc import Iterator

from common.crypto.cipher import SealedVector
from common.crypto.gram_round import EncryptedDirection
from common.rpc.chunks import CHUNK_BYTES
from common.rpc.pb import he_gram_pb2 as gram
from common.rpc.pb import job_pb2 as pb
from common.runtime.config.job import JobConfig


def held_pairs(job: JobConfig, party: str) -> tuple[str, ...]:
    """Return the parties with whom `party` holds the sum: those after it in the job's order.

    The active party comes first; the last passive party holds none and masks all of its products.
    """
    order = (job.active, *job.passive)
    return order[order.index(party) + 1 :] if party in order else ()


def products_messages(turn: pb.Turn, masker: str, products: SealedVector) -> list[gram.MaskedProducts]:
    """Return masked cross products in chunks."""
    return [gram.MaskedProducts(turn=turn, masker=masker, ciphertexts=chunk) for chunk in pieces(products)]


def direction_messages(turn: pb.Turn, sender: str, sent: EncryptedDirection) -> Iterator[gram.Direction]:
    """Yield what a party sends in a round: its block once, then each other party's complement."""
    for chunk in pieces(sent.block):
        yield gram.Direction(turn=turn, sender=sender, block=chunk)
    for receiver, complement in sent.complements.items():
        for chunk in pieces(complement):
            yield gram.Direction(turn=turn, sender=sender, receiver=receiver, complement=chunk)


def addressed_messages(
    turn: pb.Turn, sender: str, receiver: str, block: bytes, complement: bytes
) -> Iterator[gram.Direction]:
    """Yield one party's direction for one receiver; in a single message where that is possible."""
    if len(block) + len(complement) <= CHUNK_BYTES:
        yield gram.Direction(turn=turn, sender=sender, receiver=receiver, block=block, complement=complement)
        return
    for at in range(0, len(block), CHUNK_BYTES):
        chunk = block[at : at + CHUNK_BYTES]
        yield gram.Direction(turn=turn, sender=sender, receiver=receiver, block=chunk)
    for at in range(0, len(complement), CHUNK_BYTES):
        chunk = complement[at : at + CHUNK_BYTES]
        yield gram.Direction(turn=turn, sender=sender, receiver=receiver, complement=chunk)


def pieces(vector: SealedVector) -> Iterator[bytes]:
    """Yield a vector's bytes in chunks of whole ciphertexts."""
    content, width = vector.to_bytes(), vector.key.ciphertext_bytes
    step = CHUNK_BYTES // width * width
    for start in range(0, len(content), step):
        yield content[start : start + step]
