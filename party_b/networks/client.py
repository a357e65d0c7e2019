"""A passive party in a job with a split network: one method a call of protos/vfl/v1/splitnn.proto."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from common.errors import RemoteProtocolError
from common.nets.protect import Singles
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb import splitnn_pb2 as net
from common.rpc.wiretap import Wiretap
from common.runtime.config.networks import NetJob
from common.runtime.config.party import PartyConfig
from common.runtime.coordinator_client import in_round
from common.runtime.net_design import Parts
from common.runtime.wire_numbers import WireReader, WireRows
from party_b.passive_line import PassiveLine

Outgoing = asyncio.Queue[net.EpochTurn | None]


@dataclass(frozen=True, slots=True)
class Built:
    """What a passive party says of a run.

    Attributes:
        columns: Of its table.
        epochs: That it can go on from; 0 is the beginning.
    """

    columns: int
    epochs: tuple[int, ...]


class EpochLine:
    """One epoch's stream each way with one party."""

    def __init__(
        self, client: NetClient, about: net.EpochTurn, answers: AsyncIterator[net.Representations]
    ) -> None:
        self._client = client
        self._about = about
        self._answers = answers
        self.outgoing: Outgoing = asyncio.Queue()

    async def representations(self, batch: int, rows: int) -> Singles:
        """Return what the party makes of a batch, (rows, width).

        Raises:
            RemoteProtocolError: Something else came.
        """
        return await self._client.joined(self._answers, self._about, batch, rows)

    def send(self, batch: int, gradient: Singles) -> None:
        """Send the gradient of a batch; returns at once."""
        about, form = self._about, self._client.form
        self._client.note_rounding("gradients", form.rounding_error(gradient))
        for piece in form.pieces(gradient):
            rows, width = form.rows_in(piece), form.width
            self.outgoing.put_nowait(
                net.EpochTurn(
                    turn=about.turn, run=about.run, batch=batch, gradient=piece, rows=rows, width=width
                )
            )

    async def close(self) -> None:
        """End the stream; what is still running on it ends."""
        self.outgoing.put_nowait(None)
        close = getattr(self._answers, "aclose", None)
        if close is not None:
            await close()


class NetClient(PassiveLine):
    """The active party's connection to one passive party in a job with a split network."""

    def __init__(self, name: str, own: PartyConfig, job: NetJob, turn: pb.Turn, wiretap: Wiretap) -> None:
        super().__init__(name, own, job, turn, wiretap)
        self.form = WireRows(job.model.bottom[-1], job.train.wire)
        # The largest relative rounding errors so far; 0 with float32.
        self.rounding = {"representations": 0.0, "gradients": 0.0}

    async def build(self, alignment_id: bytes, rows: int, run: int, parts: Parts) -> Built:
        """Let the party choose and encode its rows of a run.

        Raises:
            RemoteProtocolError: It splits them otherwise than we do, or has no columns.
        """
        request = net.BuildNetworkRequest(turn=self._turn, alignment_id=alignment_id, rows=rows, run=run)
        reply = await self._stub.BuildNetwork(request, timeout=self._step_s)
        theirs = (reply.train_rows, reply.validation_rows, reply.test_rows)
        if theirs != (len(parts.fit), len(parts.validation), len(parts.test)) or reply.run != run:
            raise RemoteProtocolError(f"{self.name} splits the common rows otherwise than we do")
        if reply.columns < 1 or reply.width != self.form.width:
            raise RemoteProtocolError(f"{self.name} has no columns, or a network of another width")
        return Built(reply.columns, tuple(sorted({0, *reply.epochs})))

    def epoch(self, run: int, number: int, keep: Sequence[int]) -> EpochLine:
        """Begin an epoch.

        Args:
            run: Of the job.
            number: Of the epoch, from 1.
            keep: Earlier epochs that may still be asked for.
        """
        about = net.EpochTurn(turn=in_round(self._turn, number), run=run, keep=keep)
        line: EpochLine

        async def messages() -> AsyncIterator[net.EpochTurn]:
            yield about
            while (message := await line.outgoing.get()) is not None:
                yield message

        answers = aiter(self._stub.TrainEpoch(messages(), timeout=self._step_s))
        line = EpochLine(self, about, answers)
        return line

    async def representations(
        self, run: int, epoch: int, which: net.RepresentationsRequest.Rows.ValueType, rows: int
    ) -> Singles:
        """Return the representations of training or test rows with an epoch's weights, (rows, width).

        Raises:
            RemoteProtocolError: Something else came.
        """
        request = net.RepresentationsRequest(turn=in_round(self._turn, epoch), run=run, rows=which)
        answers = aiter(self._stub.SendRepresentations(request, timeout=self._step_s))
        return await self.joined(answers, request, 0, rows)

    async def joined(
        self,
        answers: AsyncIterator[net.Representations],
        about: net.EpochTurn | net.RepresentationsRequest,
        batch: int,
        rows: int,
    ) -> Singles:
        """Return the next whole array of a stream, which must be of this batch.

        Raises:
            RemoteProtocolError: Something else came, or nothing more.
        """
        reader = WireReader(self.form, rows)
        while (message := await anext(answers, None)) is not None:
            if (message.turn, message.run, message.batch) != (about.turn, about.run, batch):
                raise RemoteProtocolError(
                    f"{self.name} sent representations of another batch than the next one"
                )
            self.note_rounding("representations", message.rounding_error)
            if reader.add(message.values):
                return reader.rows()
        raise RemoteProtocolError(f"{self.name} ended a stream before its last representation")

    def note_rounding(self, what: str, error: float) -> None:
        """Remember how much the wire rounds away."""
        self.rounding[what] = max(self.rounding[what], error)
