"""Scores of new rows at a guest (protos/vfl/v1/predict.proto): common rows, as the policy allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import numpy as np

from common.errors import Refused, RemoteProtocolError
from common.rpc.chunks import chunk_slices
from common.rpc.pb import predict_pb2 as pb
from common.rpc.pb.he_linear_pb2 import PartialScores
from common.runtime.config.party import PartyConfig
from common.runtime.config.predict import PredictJob
from common.runtime.guest.align_calls import AlignmentCalls
from common.runtime.guest.job_calls import JobCalls
from common.runtime.guest.quota import DailyQuota
from common.runtime.new_rows import NewRows, read_new_rows
from common.runtime.saved_model import OwnScores, SavedModel, load_model
from common.runtime.state import JobStore
from common.types import Floats, Ints

_SCORE_BYTES = 8  # a partial score in the clear is a double

# Rows that single requests count at once: a write to the disk for each would take most of a request's time.
_COUNTED_AHEAD = 64


@dataclass(frozen=True, slots=True, eq=False)
class Scorable:
    """A model of this party, and the new rows that a job wants scored with it."""

    model: SavedModel
    digest: str
    rows: NewRows = field(repr=False)


def agreed_model(own: PartyConfig, job: PredictJob, store: JobStore) -> tuple[SavedModel, str]:
    """Return this party's part of the model that a job names, and the digest of its file.

    Raises:
        UnknownJob: There is no such model here.
        Refused: It was trained for another party, or together with others.
    """
    model, digest = load_model(store, job.model, own.party)
    if model.active != job.active:
        raise Refused(
            f"the model of job {job.model} was not trained for {job.active}",
            advice="Only the active party of the job that trained a model gets scores of it.",
        )
    if (set(model.passive), set(model.also_active)) != (set(job.passive), set(job.also_active)):
        raise Refused(f"the model of job {job.model} was trained with other parties than these")
    return model, digest


def scorable(own: PartyConfig, job: PredictJob, store: JobStore, least: int) -> Scorable:
    """Return the model and the new rows of a job.

    Args:
        own: This party.
        job: That was admitted.
        store: Where models are kept.
        least: Rows that the policy asks for.

    Raises:
        UnknownJob, Refused: As `agreed_model`; or there is no such data set, or it has too few rows.
        DataError: The rows do not fit the model.
    """
    model, digest = agreed_model(own, job, store)
    rows = read_new_rows(own, job, model)
    if rows.table.rows < least:
        raise Refused(
            f"the policy of {own.party} scores {least} rows at least; the data set has {rows.table.rows}"
        )
    return Scorable(model, digest, rows)


class PredictionCalls(JobCalls):
    """The state of one prediction at one guest."""

    def __init__(
        self, job: PredictJob, scorable: Scorable, alignment: AlignmentCalls, quota: DailyQuota
    ) -> None:
        super().__init__(alignment)
        self._job = job
        self._scorable = scorable
        self._quota = quota
        self._own: OwnScores | None = None
        self._sent = np.zeros(0, dtype=np.bool_)
        self._scoring = asyncio.Lock()

    async def score_rows(self, request: pb.ScoreRowsRequest) -> AsyncIterator[PartialScores]:
        """Yield u_A of the rows that are asked for, in the clear, after they were counted."""
        async with self._scoring:
            scores = await self._aligned_scores(request.alignment_id, request.rows)
            chosen = self._chosen(np.array(request.positions, dtype=np.int64), len(scores))
            fresh = int(np.count_nonzero(~self._sent[chosen]))
            if fresh:
                ahead = _COUNTED_AHEAD if self._job.mode == "online" else 0
                await self._quota.spend(self._job.active, fresh, ahead)
                self._sent[chosen] = True
        for part in chunk_slices(len(chosen), _SCORE_BYTES):
            yield PartialScores(turn=request.turn, scores=scores[chosen[part]].tolist())

    async def leave(self) -> None:
        """Drop the scores; what is known about them stays."""
        if self._own is not None:
            self._own = replace(self._own, scores=np.zeros(0))

    def model(self, job_id: str, rounds: int) -> None:
        """Return nothing: scoring trains nothing."""

    def unseen(self) -> tuple[int, ...]:
        """Return, for each column with categories that no training row had, in how many common rows."""
        return () if self._own is None else self._own.unseen

    def notes(self) -> list[str]:
        """Return what became of this party's own rows."""
        rows = self._scorable.rows
        sent = int(np.count_nonzero(self._sent))
        told = f"{rows.table.rows:,} new rows, {len(self._sent):,} common, {sent:,} scored"
        return [told, *rows.notes, *(() if self._own is None else self._own.notes)]

    async def _aligned_scores(self, alignment_id: bytes, count: int) -> Floats:
        rows = self.alignment.rows(alignment_id, count)
        if self._own is None:
            self._own = await self.watch.thread("scores", self._score, rows)
            self._sent = np.zeros(len(rows), dtype=np.bool_)
        return self._own.scores

    def _score(self, rows: Ints) -> OwnScores:
        return self._scorable.model.partial_scores(self._scorable.rows.table.take(rows))

    def _chosen(self, positions: Ints, count: int) -> Ints:
        """Return the positions that are asked for; none means all, and is for a batch."""
        if self._job.mode == "batch":
            if len(positions):
                raise RemoteProtocolError("single rows were asked for in a job of mode batch")
            return np.arange(count)
        if not 0 < len(positions) <= count or len(np.unique(positions)) < len(positions):
            raise RemoteProtocolError("the rows to be scored are none, or one of them is named twice")
        if positions.min() < 0 or positions.max() >= count:
            raise RemoteProtocolError("a row to be scored stands beyond the common ones")
        return positions
