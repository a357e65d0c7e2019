"""Representations of new rows at a passive party (splitnn.proto): common rows, as the policy allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from common.errors import Refused, RemoteProtocolError
from common.nets.protect import Singles
from common.rpc.pb import splitnn_pb2 as pb
from common.runtime.config.party import PartyConfig
from common.runtime.config.predict import PredictJob
from common.runtime.guest.align_calls import AlignmentCalls
from common.runtime.guest.job_calls import JobCalls
from common.runtime.guest.quota import DailyQuota
from common.runtime.net_design import encoded
from common.runtime.net_halves import saved_bottom
from common.runtime.new_rows import NewFields, open_new_rows
from common.runtime.saved_network import LoadedNetwork, load_network
from common.runtime.state import JobStore
from common.runtime.wire_numbers import WireRows
from common.types import Ints


@dataclass(frozen=True, slots=True, eq=False)
class NetScorable:
    """A network of this party, and the new rows that a job wants represented by it."""

    network: LoadedNetwork
    rows: NewFields = field(repr=False)


def net_scorable(own: PartyConfig, job: PredictJob, store: JobStore, least: int) -> NetScorable:
    """Return the network and the new rows of a job.

    Args:
        own: This party.
        job: That was admitted.
        store: Where models are kept.
        least: Rows that the policy asks for.

    Raises:
        UnknownJob, Refused: There is no such model here, it is not for this caller, it needs no scores of
            ours, or the data set has too few rows.
        DataError: The rows do not fit the model.
    """
    network = load_network(store, job.model, own.party)
    saved = network.saved
    if saved.active != job.active:
        raise Refused(
            f"the model of job {job.model} was not trained for {job.active}",
            advice="Only the active party of the job that trained a model gets scores of it.",
        )
    if saved.algorithm != "splitnn":
        raise Refused(
            f"the model of job {job.model} ({saved.algorithm}) predicts without {own.party}",
            advice="What was handed over in training is all that such a model needs of us.",
        )
    if set(saved.passive) != set(job.passive):
        raise Refused(f"the model of job {job.model} was trained with other passive parties than these")
    if job.mode != "batch":
        raise Refused(
            "a split network scores batches only", advice="vfl predict JOB --dataset NAME --out FILE"
        )
    rows = open_new_rows(own, job, saved)
    read = rows.head.table.rows
    if read < least:
        raise Refused(f"the policy of {own.party} scores {least} rows at least; the data set has {read}")
    return NetScorable(network, rows)


class NetPredictionCalls(JobCalls):
    """The state of one prediction with a split network at one passive party."""

    def __init__(
        self,
        job: PredictJob,
        scorable: NetScorable,
        alignment: AlignmentCalls,
        quota: DailyQuota,
        folder: Path,
    ) -> None:
        """Have the rows encoded in a folder, which ends with the job."""
        super().__init__(alignment)
        self._job = job
        self._scorable = scorable
        self._quota = quota
        self._folder = folder
        self._sent = 0
        self._turn = asyncio.Lock()
        self._values: Singles | None = None

    async def represent_rows(self, request: pb.RepresentRowsRequest) -> AsyncIterator[pb.Representations]:
        """Yield h_A of all common rows, after they were counted; a repeated request gets the same again."""
        async with self._turn:
            rows = self.alignment.rows(request.alignment_id, request.rows)
            if self._values is None:
                values = await self.watch.thread("scores", self._represent, rows)
                await self._quota.spend(self._job.active, len(rows), 0)
                self._sent, self._values = len(rows), values
        values = self._values
        form = WireRows(values.shape[1], "float32")
        for piece in form.pieces(values):
            count = form.rows_in(piece)
            yield pb.Representations(turn=request.turn, values=piece, rows=count, width=form.width)

    async def leave(self) -> None:
        """Drop what was sent."""
        self._values = None

    def model(self, job_id: str, rounds: int) -> None:
        """Return nothing: scoring trains nothing."""

    def notes(self) -> list[str]:
        """Return what became of this party's own rows."""
        rows = self._scorable.rows.head
        return [f"{rows.table.rows:,} new rows, {self._sent:,} represented", *rows.notes]

    def _represent(self, rows: Ints) -> Singles:
        if not len(rows):
            raise RemoteProtocolError("no row is common, and none can be represented")
        saved = self._scorable.network.saved
        own = encoded(self._scorable.rows.rows, rows, saved.plan, self._folder)
        return saved_bottom(self._scorable.network.weights, own.rows, saved.release)
