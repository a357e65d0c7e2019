"""The calls of Gram rounds at a passive party (protos/vfl/v1/he_gram.proto): checks the caller, hands on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from common.errors import RemoteProtocolError
from common.rpc.identity import Context
from common.rpc.pb import he_gram_pb2 as gram
from common.rpc.pb import he_linear_pb2 as he
from common.runtime.guest.job_calls import JobServicer
from party_a.he_gram_calls import GramCalls
from party_a.regression_calls import RegressionCalls

M = TypeVar("M")


class GramServicer(JobServicer):
    """The part of the service that speaks of Gram rounds, and of steps between rounds."""

    async def TakeStep(self, request: he.StepRequest, context: Context) -> he.StepTaken:  # noqa: N802
        return await self._calls(RegressionCalls, request.turn, context).take_step(request)

    async def SendPackedRows(  # noqa: N802
        self, request: gram.PackedRowsRequest, context: Context
    ) -> AsyncIterator[gram.PackedRows]:
        async for chunk in self._calls(GramCalls, request.turn, context).send_packed_rows(request):
            yield chunk

    async def MaskProducts(  # noqa: N802
        self, request: AsyncIterator[gram.PackedRows], context: Context
    ) -> AsyncIterator[gram.MaskedProducts]:
        first = await first_of(request)
        async for chunk in self._calls(GramCalls, first.turn, context).mask_products(first, request):
            yield chunk

    async def TakeProducts(  # noqa: N802
        self, request: AsyncIterator[gram.MaskedProducts], context: Context
    ) -> gram.ProductsTaken:
        first = await first_of(request)
        return await self._calls(GramCalls, first.turn, context).take_products(first, request)

    async def SendDirection(  # noqa: N802
        self, request: gram.DirectionRequest, context: Context
    ) -> AsyncIterator[gram.Direction]:
        async for chunk in self._calls(GramCalls, request.turn, context).send_direction(request):
            yield chunk

    async def ApplyDirections(  # noqa: N802
        self, request: AsyncIterator[gram.Direction], context: Context
    ) -> gram.DirectionsApplied:
        first = await first_of(request)
        return await self._calls(GramCalls, first.turn, context).apply_directions(first, request)


async def first_of(stream: AsyncIterator[M]) -> M:
    """Return the first message of a stream.

    Raises:
        RemoteProtocolError: There is none.
    """
    async for message in stream:
        return message
    raise RemoteProtocolError("an empty stream came")
