"""Conducts scores of new rows with a model that an earlier job left (protos/vfl/v1/predict.proto)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable

import numpy as np

from common.data.table import Table
from common.errors import LocalProtocolError, Refused, RemoteProtocolError
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb.he_linear_pb2 import PartialScores
from common.rpc.pb.predict_pb2 import ScoreRowsRequest
from common.runtime.config.predict import PredictJob
from common.runtime.new_rows import NewRows, read_new_rows
from common.runtime.saved_model import SavedModel, load_model
from common.types import Floats, Ints
from party_b.job_life import JobLife, Opened, OwnRows, Tools, turn_of
from party_b.jobs import ActiveJob
from party_b.passive_line import PassiveLine
from party_b.prediction_outcome import Model, ScoredOutcome, write_scored
from party_b.scoring_desk import ScoringDesk, ScoringSession, StandingRows

# B's own bound on common rows. Whether so few may be known to be common is for the passive parties to say.
_LEAST_COMMON = 1


class ScoringClient(PassiveLine):
    """The active party's connection to one passive party in a prediction."""

    async def score_rows(self, alignment_id: bytes, rows: int, positions: Ints) -> Floats:
        """Return the party's partial scores, one for each position; for none of them, of all `rows`.

        Raises:
            PeerRefused: The party's policy does not allow so many.
            RemoteProtocolError: Not one finite number a row came.
        """
        request = ScoreRowsRequest(
            turn=self._turn, alignment_id=alignment_id, rows=rows, positions=positions.tolist()
        )
        wanted = len(positions) or rows
        scores = await _joined(self._stub.ScoreRows(request, timeout=self._step_s), wanted)
        if len(scores) != wanted or not np.isfinite(scores).all():
            raise RemoteProtocolError(f"{self.name} did not send one finite score for each of {wanted} rows")
        return scores


class PredictionConductor:
    """Conducts a prediction."""

    def __init__(self, active: ActiveJob, job: PredictJob, tools: Tools, desk: ScoringDesk) -> None:
        self._active = active
        self._job = job
        self._tools = tools
        self._desk = desk
        arguments = (tools.own, job, turn_of(active), tools.wiretap)
        self._passive = [ScoringClient(name, *arguments) for name in job.guests]
        self.life = JobLife(active, tools, self._passive)

    async def run(self) -> None:
        """Open, align, score, close, report."""
        outcome = await self.life.while_present(self._work())
        with self.life.timed("closing"):
            replies = await self.life.close(0)
        outcome.finish(self.life, replies)
        for notice in outcome.unseen_notes():
            await self._active.warn(notice)
        await asyncio.to_thread(write_scored, outcome, self._tools.store)

    async def _work(self) -> ScoredOutcome:
        with self.life.timed("opening"):
            model, rows, opened = await self._open()
        with self.life.timed("aligning"):
            aligned = await self.life.align(opened)
        common = aligned.alignment.rows
        table = await asyncio.to_thread(rows.table.take, common)
        outcome = ScoredOutcome(
            job_id=self._active.job_id,
            job=self._job,
            model=model,
            ids=table.ids,
            order=np.argsort(common, kind="stable"),
            labels=None if rows.labels is None else rows.labels[common],
            rows=opened.rows,
            aligned=aligned,
            notes=list(rows.notes),
        )
        await self._score(outcome, table)
        return outcome

    def _load(self) -> Model:
        """Return B's part of the model."""
        return load_model(self._tools.store, self._job.model, self._tools.own.party)[0]

    def _read(self, model: Model) -> NewRows:
        """Return B's own new rows."""
        return read_new_rows(self._tools.own, self._job, model)

    async def _open(self) -> tuple[Model, NewRows, Opened]:
        job = self._job
        others = ", ".join(job.guests) or "nobody else"
        await self._active.enter("opening", f"opening the prediction with {others}")
        model = await asyncio.to_thread(self._load)
        elsewhere = (*(model.also_active if isinstance(model, SavedModel) else ()), *model.passive)
        if set(elsewhere) != set(job.guests):
            raise Refused(
                f"the model of job {job.model} has parts at {', '.join(elsewhere) or 'no other party'}; "
                f"the prediction names {others}"
            )
        rows = await asyncio.to_thread(self._read, model)
        opened = await self.life.open(OwnRows(rows.table.ids, _LEAST_COMMON))
        for name, reply in opened.replies.items():
            _require_same_model(model, name, reply)
        return model, rows, opened

    async def _score(self, outcome: ScoredOutcome, table: Table) -> None:
        if not isinstance(outcome.model, SavedModel):
            raise LocalProtocolError("partial scores are of linear models")
        own = await self.life.watch.thread("scores", outcome.model.partial_scores, table)
        own_scores, outcome.unseen = own.scores, {self._job.active: own.unseen}
        outcome.notes += own.notes
        if self._job.mode == "online":
            await self._serve(outcome, own_scores)
            return
        with self.life.timed("scoring"):
            await self._active.enter("scoring", f"scoring {len(own_scores):,} common rows")
            none = np.zeros(0, dtype=np.int64)
            arguments = (outcome.aligned.alignment.alignment_id, len(own_scores), none)
            parts = await asyncio.gather(*(client.score_rows(*arguments) for client in self._passive))
            outcome.scores = np.asarray(own_scores + sum(parts))

    async def _serve(self, outcome: ScoredOutcome, own_scores: Floats) -> None:
        """Let the operator ask for single rows until nobody does any more."""
        job = self._job
        rows = StandingRows(
            rule=self._tools.own.datasets[job.data.dataset].id_rule(),
            positions={one: at for at, one in enumerate(outcome.ids)},
            own_scores=own_scores,
            alignment_id=outcome.aligned.alignment.alignment_id,
            is_classifier=outcome.model.loss == "logistic",
        )
        session = ScoringSession(self._active.job_id, rows, self._passive)
        self._desk.open(job.model, job.data.dataset, session)
        try:
            with self.life.timed("serving"):
                await self._active.enter("serving", f"{len(own_scores):,} common rows can be scored")
                await session.until_idle()
        finally:
            self._desk.close(job.model, job.data.dataset, session)
            outcome.asked = session.scored


def _require_same_model(model: Model, party: str, reply: pb.OpenJobReply) -> None:
    if model.parts.get(party) != reply.model_digest:
        raise RemoteProtocolError(
            f"{party}'s part of the model of job {model.job_id} is not the one that training left there",
            where=f"model.json of {party}",
            advice="Put back the file of that job, or train again.",
        )


async def _joined(chunks: AsyncIterable[PartialScores], most: int) -> Floats:
    parts: list[Floats] = []
    received = 0
    async for chunk in chunks:
        parts.append(np.array(chunk.scores, dtype=np.float64))
        received += len(parts[-1])
        if received > most:
            break
    return np.concatenate(parts) if parts else np.zeros(0)
