"""The calls of entity alignment at a guest (protos/vfl/v1/align.proto): checks, and hands on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from common.errors import RemoteProtocolError
from common.rpc.identity import Context
from common.rpc.pb import align_pb2 as align
from common.runtime.guest.job_calls import JobCalls, JobServicer

M = TypeVar("M")


class AlignServicer(JobServicer):
    """The part of the service that aligns ids."""

    async def BlindOwnIds(  # noqa: N802
        self, request: align.BlindOwnIdsRequest, context: Context
    ) -> AsyncIterator[align.BlindedIds]:
        alignment = self._calls(JobCalls, request.turn, context).alignment
        async for chunk in alignment.blind_own(request.turn):
            yield chunk

    async def BlindIds(  # noqa: N802
        self, request: AsyncIterator[align.BlindedIds], context: Context
    ) -> AsyncIterator[align.BlindedIds]:
        first = await _first_of(request, "blinded ids")
        alignment = self._calls(JobCalls, first.turn, context).alignment
        async for chunk in alignment.blind_other(first, request):
            yield chunk

    async def RevealCommon(  # noqa: N802
        self, request: AsyncIterator[align.CommonPositions], context: Context
    ) -> AsyncIterator[align.CommonPositions]:
        first = await _first_of(request, "common positions")
        alignment = self._calls(JobCalls, first.turn, context).alignment
        async for chunk in alignment.reveal(first, request):
            yield chunk

    async def SetCommonRows(  # noqa: N802
        self, request: AsyncIterator[align.CommonRows], context: Context
    ) -> align.CommonRowsSet:
        first = await _first_of(request, "common rows")
        alignment = self._calls(JobCalls, first.turn, context).alignment
        return await alignment.set_common(first, request)

    async def DescribeIds(self, request: align.DescribeIdsRequest, context: Context) -> align.IdProfile:  # noqa: N802
        alignment = self._calls(JobCalls, request.turn, context).alignment
        return await alignment.describe(request.turn)


async def _first_of(request: AsyncIterator[M], content: str) -> M:
    first = await anext(request, None)
    if first is None:
        raise RemoteProtocolError(f"an empty stream came instead of {content}")
    return first
