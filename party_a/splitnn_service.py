"""The calls of split networks at a passive party (splitnn.proto): checks the caller, hands on."""

from __future__ import annotations

from collections.abc import AsyncIterator

from common.rpc.identity import Context
from common.rpc.pb import splitnn_pb2 as pb
from common.runtime.guest.job_calls import JobServicer
from party_a.he_gram_service import first_of
from party_a.net_calls import NetCalls
from party_a.net_predict_calls import NetPredictionCalls


class SplitServicer(JobServicer):
    """The part of the service that speaks of split networks."""

    async def BuildNetwork(self, request: pb.BuildNetworkRequest, context: Context) -> pb.NetworkBuilt:  # noqa: N802
        return await self._calls(NetCalls, request.turn, context).build(request)

    async def TrainEpoch(  # noqa: N802
        self, request: AsyncIterator[pb.EpochTurn], context: Context
    ) -> AsyncIterator[pb.Representations]:
        first = await first_of(request)
        async for chunk in self._calls(NetCalls, first.turn, context).train_epoch(first, request):
            yield chunk

    async def SendRepresentations(  # noqa: N802
        self, request: pb.RepresentationsRequest, context: Context
    ) -> AsyncIterator[pb.Representations]:
        async for chunk in self._calls(NetCalls, request.turn, context).send_representations(request):
            yield chunk

    async def RepresentRows(  # noqa: N802
        self, request: pb.RepresentRowsRequest, context: Context
    ) -> AsyncIterator[pb.Representations]:
        async for chunk in self._calls(NetPredictionCalls, request.turn, context).represent_rows(request):
            yield chunk
