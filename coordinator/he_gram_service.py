"""The calls of Gram rounds at the key holder (protos/vfl/v1/he_gram.proto): checks the caller, hands on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator

from common.crypto.cipher import CipherVector, parse_ciphertexts
from common.errors import Refused, RemoteProtocolError
from common.rpc.chunks import chunk_slices
from common.rpc.identity import Context, caller
from common.rpc.pb import he_gram_pb2 as gram
from common.rpc.pb.coordinator_pb2_grpc import CoordinatorServicer
from common.runtime.hosting import HostedJob, JobHost
from common.runtime.stopwatch import Stopwatch
from coordinator.he_gram import GramKeyHolder, PackedLengths
from coordinator.he_linear import KeyHolder


class GramServicer(CoordinatorServicer):
    """The part of the service that speaks of Gram rounds; their results are decrypted as gradients are."""

    _host: JobHost[KeyHolder]
    _watches: defaultdict[str, Stopwatch]

    async def DeclareGram(  # noqa: N802
        self, request: gram.GramDeclaration, context: Context
    ) -> gram.GramDeclared:
        party = caller(context)
        holder = _gram(self._host.find(request.turn, party))
        holder.declare(party, PackedLengths(request.result_length, dict(request.products_lengths)))
        return gram.GramDeclared(turn=request.turn)

    async def DecryptProducts(  # noqa: N802
        self, request: AsyncIterator[gram.BlindedProducts], context: Context
    ) -> AsyncIterator[gram.DecryptedProducts]:
        party = caller(context)
        hosted, first, vector = await self._collect_products(request, party)
        residues = await self._watches[hosted.job_id].thread(
            "decryption", _gram(hosted).decrypt_products, party, first.masker, vector
        )
        width = vector.key.residue_bytes
        for rows in chunk_slices(len(residues), width):
            packed = b"".join(residue.to_bytes(width, "big") for residue in residues[rows])
            yield gram.DecryptedProducts(turn=first.turn, residues=packed)

    async def _collect_products(
        self, request: AsyncIterator[gram.BlindedProducts], party: str
    ) -> tuple[HostedJob[KeyHolder], gram.BlindedProducts, CipherVector]:
        """Put the chunks together; more than the declared length is not even kept."""
        first: gram.BlindedProducts | None = None
        parts, length = [], 0
        async for message in request:
            if first is None:
                first, hosted = message, self._host.find(message.turn, party)
                holder = _gram(hosted)
            elif (message.turn, message.masker) != (first.turn, first.masker):
                raise RemoteProtocolError("one stream speaks of two turns or parties")
            parts.append(parse_ciphertexts(message.ciphertexts, holder.key.public, None))
            length += len(parts[-1])
            if length > holder.products_length(party, first.masker):
                raise Refused(f"{party} sent more cross products with {first.masker} than it declared")
        if first is None:
            raise RemoteProtocolError("an empty stream came instead of cross products")
        return hosted, first, CipherVector.joined(holder.key.public, parts)


def _gram(hosted: HostedJob[KeyHolder]) -> GramKeyHolder:
    if not isinstance(hosted.state, GramKeyHolder):
        raise RemoteProtocolError("the job has row-wise rounds")
    return hosted.state
