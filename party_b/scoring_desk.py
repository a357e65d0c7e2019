"""Standing predictions: few rows at a time, in milliseconds, from rows that were aligned before."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from common.data.ids import IdRule
from common.errors import Refused
from common.glm.losses import probabilities
from common.rpc.pb.active_party_pb2 import RowScore, ScoreIdsReply
from common.types import Floats, Ints

MOST_IDS = 1000
"""In one request: more is a batch."""

IDLE_S = 3600.0
"""A standing job that nobody asks for so long ends, because it holds memory at every party."""


class Scorer(Protocol):
    """A passive party in a standing job."""

    async def score_rows(self, alignment_id: bytes, rows: int, positions: Ints) -> Floats:
        """Return the party's partial scores of these rows."""


@dataclass(frozen=True, slots=True, eq=False)
class StandingRows:
    """The aligned rows of a standing job; may be seen by the active party alone.

    Attributes:
        rule: How a cell becomes an id.
        positions: In the aligned order, by id.
        own_scores: (n,), of the active party.
        is_classifier: Whether a score stands for a probability.
    """

    rule: IdRule
    positions: Mapping[str, int] = field(repr=False)
    own_scores: Floats = field(repr=False)
    alignment_id: bytes
    is_classifier: bool


class ScoringSession:
    """One standing job, between its alignment and its end."""

    def __init__(self, job_id: str, rows: StandingRows, passive: Sequence[Scorer]) -> None:
        self.job_id = job_id
        self.scored = 0
        self._rows = rows
        self._passive = passive
        self._idle = asyncio.Event()
        self._timer = self._from_now()

    async def score(self, ids: Sequence[str]) -> ScoreIdsReply:
        """Return the scores of these ids; one that not every party has gets none.

        Raises:
            Refused: They are none, or too many for one request.
            PeerRefused: A passive party's policy is used up.
        """
        if not 0 < len(ids) <= MOST_IDS:
            raise Refused(f"1 to {MOST_IDS:,} ids are scored at once; score more of them as a batch")
        self._timer.cancel()
        self._timer = self._from_now()
        found = [self._rows.positions.get(self._rows.rule.canonical(one)) for one in ids]
        wanted = np.array(sorted({position for position in found if position is not None}), dtype=np.int64)
        scores = dict(zip(wanted.tolist(), (await self._scores(wanted)).tolist(), strict=True))
        reply = ScoreIdsReply(job_id=self.job_id)
        for one, position in zip(ids, found, strict=True):
            reply.rows.append(self._row(one, None if position is None else scores[position]))
        self.scored += len(wanted)
        return reply

    async def until_idle(self) -> None:
        """Return when nobody has asked for a long time."""
        try:
            await self._idle.wait()
        finally:
            self._timer.cancel()

    def _from_now(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(IDLE_S, self._idle.set)

    async def _scores(self, wanted: Ints) -> Floats:
        rows = self._rows
        if not len(wanted):
            return np.zeros(0)
        parts = await asyncio.gather(
            *(one.score_rows(rows.alignment_id, len(rows.own_scores), wanted) for one in self._passive)
        )
        return np.asarray(rows.own_scores[wanted] + sum(parts))

    def _row(self, one: str, score: float | None) -> RowScore:
        row = RowScore(id=one)
        if score is not None:
            row.score = score
            if self._rows.is_classifier:
                row.probability = float(probabilities(np.array([score]))[0])
        return row


class ScoringDesk:
    """The standing jobs of this party, by trained job and data set."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ScoringSession] = {}

    def find(self, model: str, dataset: str) -> ScoringSession | None:
        """Return the session that serves a model and a data set."""
        return self._sessions.get((model, dataset))

    def open(self, model: str, dataset: str, session: ScoringSession) -> None:
        """Let a session serve."""
        self._sessions[model, dataset] = session

    def close(self, model: str, dataset: str, session: ScoringSession) -> None:
        """Take a session back; a newer one for the same stays."""
        if self.find(model, dataset) is session:
            del self._sessions[model, dataset]
