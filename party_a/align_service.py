"""The calls of entity alignment at a passive party (protos/vfl/v1/align.proto): checks, and hands on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from common.errors import RemoteProtocolError
from common.rpc.identity import Context, caller
from common.rpc.pb import align_pb2 as align
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb.passive_party_pb2_grpc import PassivePartyServicer
from common.runtime.hosting import JobHost
from party_a.regression_calls import RegressionCalls

M = TypeVar("M")


class AlignServicer(PassivePartyServicer):
    """The part of the service that aligns ids, and builds the design on the rows that are common."""

    _host: JobHost[RegressionCalls]

    async def BlindOwnIds(  # noqa: N802
        self, request: align.BlindOwnIdsRequest, context: Context
    ) -> AsyncIterator[align.BlindedIds]:
        hosted = self._host.find(request.turn, caller(context))
        async for chunk in hosted.state.alignment.blind_own(request.turn):
            yield chunk

    async def BlindIds(  # noqa: N802
        self, request: AsyncIterator[align.BlindedIds], context: Context
    ) -> AsyncIterator[align.BlindedIds]:
        first = await _first_of(request, "blinded ids")
        hosted = self._host.find(first.turn, caller(context))
        async for chunk in hosted.state.alignment.blind_other(first, request):
            yield chunk

    async def RevealCommon(  # noqa: N802
        self, request: AsyncIterator[align.CommonPositions], context: Context
    ) -> AsyncIterator[align.CommonPositions]:
        first = await _first_of(request, "common positions")
        hosted = self._host.find(first.turn, caller(context))
        async for chunk in hosted.state.alignment.reveal(first, request):
            yield chunk

    async def SetCommonRows(  # noqa: N802
        self, request: AsyncIterator[align.CommonRows], context: Context
    ) -> align.CommonRowsSet:
        first = await _first_of(request, "common rows")
        hosted = self._host.find(first.turn, caller(context))
        return await hosted.state.alignment.set_common(first, request)

    async def DescribeIds(self, request: align.DescribeIdsRequest, context: Context) -> align.IdProfile:  # noqa: N802
        hosted = self._host.find(request.turn, caller(context))
        return await hosted.state.alignment.describe(request.turn)

    async def BuildDesign(self, request: he.BuildDesignRequest, context: Context) -> he.BuildDesignReply:  # noqa: N802
        hosted = self._host.find(request.turn, caller(context))
        rows = hosted.state.alignment.rows(request.alignment_id, request.rows)
        return await hosted.state.build_design(request.turn, rows)


async def _first_of(request: AsyncIterator[M], content: str) -> M:
    first = await anext(request, None)
    if first is None:
        raise RemoteProtocolError(f"an empty stream came instead of {content}")
    return first
