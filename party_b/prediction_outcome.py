"""What a prediction leaves at the active party: predictions.csv and report.json."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from common.data.wording import counted
from common.glm.losses import probabilities
from common.glm.metrics import classification_metrics, regression_metrics
from common.rpc.greeting import package_version
from common.rpc.pb import job_pb2 as pb
from common.runtime.config.predict import PredictJob
from common.runtime.saved_model import SavedModel
from common.runtime.saved_network import SavedNetwork
from common.runtime.state import JobStore
from common.types import Floats, Ints
from party_b.alignment import Aligned
from party_b.job_life import JobLife
from party_b.unmatched import ids_described

PREDICTIONS_FILE = "predictions.csv"

Model: TypeAlias = SavedModel | SavedNetwork


@dataclass(slots=True, kw_only=True, eq=False)
class ScoredOutcome:
    """Everything B knows about a prediction; complete when every party has closed it.

    Attributes:
        ids: Of the common rows, in the aligned order.
        order: Positions of the common rows in the order of B's own data set.
        labels: (n,), NaN for a row without one; None without a label column.
        rows: By party, before alignment.
        notes: What reading and preparing did.
        scores: (n,), in the aligned order; None where rows were asked for one by one.
        asked: How many rows were asked for one by one.
        unseen: By party, for each of its columns with categories that no training row had, in how many of
            the common rows.
    """

    job_id: str
    job: PredictJob
    model: Model
    ids: Sequence[str] = field(repr=False)
    order: Ints = field(repr=False)
    labels: Floats | None = field(repr=False)
    rows: Mapping[str, int]
    aligned: Aligned
    notes: list[str]
    scores: Floats | None = field(default=None, repr=False)
    asked: int = 0
    unseen: Mapping[str, Sequence[int]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    computing: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    traffic: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def finish(self, life: JobLife, replies: Mapping[str, pb.CloseJobReply]) -> None:
        """Note what the job has cost every party."""
        active = self.job.active
        self.unseen = {**self.unseen, **{name: tuple(reply.unseen) for name, reply in replies.items()}}
        self.seconds = life.seconds
        self.computing = {active: dict(life.watch.seconds)} | {
            name: dict(reply.seconds) for name, reply in replies.items()
        }
        self.traffic = {active: life.traffic()} | {
            name: (reply.sent_bytes, reply.received_bytes) for name, reply in replies.items()
        }

    def unseen_notes(self) -> list[str]:
        """Return a warning for each party with categories that its training rows did not have."""
        common = len(self.ids)
        return [
            f"{party}: {counted(len(rows), 'column')} with categories that no training row had, in "
            f"{', '.join(f'{count:,}' for count in rows)} of {common:,} common rows; "
            "they count as none of the known ones"
            for party, rows in self.unseen.items()
            if rows
        ]


def write_scored(outcome: ScoredOutcome, store: JobStore) -> None:
    """Write report.json and, of a batch, predictions.csv into B's state."""
    if outcome.scores is not None:
        store.write_bytes(outcome.job_id, PREDICTIONS_FILE, _csv(outcome, outcome.scores).encode())
    store.write_json(outcome.job_id, "report.json", _report(outcome))


def metrics_of(outcome: ScoredOutcome, scores: Floats) -> dict[str, float | None] | None:
    """Return how good the scores are on the rows that have a label; None without any."""
    if outcome.labels is None:
        return None
    known = np.isfinite(outcome.labels)
    if not known.any():
        return None
    labels, measured = outcome.labels[known], scores[known]
    if outcome.model.loss == "logistic":
        y01 = np.where(labels > 0, 1.0, 0.0)  # of {0, 1} as of {−1, +1}
        found = classification_metrics(y01, measured, probabilities(measured))
    else:
        found = regression_metrics(labels, measured)
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def _csv(outcome: ScoredOutcome, scores: Floats) -> str:
    """Return id, score and, for a classifier, probability, in the order of B's own data set."""
    columns = [scores]
    if outcome.model.loss == "logistic":
        columns.append(probabilities(scores))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "score", "probability"][: 1 + len(columns)])
    for at in outcome.order:
        writer.writerow([outcome.ids[at], *(repr(float(column[at])) for column in columns)])
    return text.getvalue()


def _report(outcome: ScoredOutcome) -> dict[str, object]:
    job, model = outcome.job, outcome.model
    scored = outcome.asked if outcome.scores is None else len(outcome.scores)
    return {
        "job": job.job,
        "job_id": outcome.job_id,
        "algorithm": job.algorithm,
        "version": package_version(),
        "ended_at": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "settings": json.loads(job.canonical_json()),
        "parties": {job.active: "active"} | {name: job.role_of(name) for name in job.guests},
        "model": {
            "job_id": model.job_id,
            "job": model.job,
            "algorithm": model.algorithm,
            "rounds": model.rounds,
        },
        "rows": {**outcome.rows, "aligned": len(outcome.ids), "scored": scored},
        "metrics": {"new": None if outcome.scores is None else metrics_of(outcome, outcome.scores)},
        "seconds": {
            "total": sum(outcome.seconds.values()),
            "by_phase": dict(outcome.seconds),
            "by_party": {name: dict(seconds) for name, seconds in outcome.computing.items()},
        },
        "traffic": {
            name: {"sent_bytes": sent, "received_bytes": received}
            for name, (sent, received) in outcome.traffic.items()
        },
        "notes": [*outcome.notes, *_counts(outcome)],
        "leaks": list(_leaks(outcome, scored)),
    }


def _counts(outcome: ScoredOutcome) -> Iterator[str]:
    own, common = outcome.rows[outcome.job.active], len(outcome.ids)
    if common < own:
        others = " and ".join(outcome.job.guests)
        yield f"{own:,} rows here, {common:,} of them also at {others}; {own - common:,} have no score"
    yield from outcome.aligned.notes
    yield from outcome.unseen_notes()
    if outcome.labels is not None:
        labelled = int(np.isfinite(outcome.labels).sum())
        which = "common rows" if outcome.job.guests else "rows"
        yield f"{labelled:,} of {common:,} {which} have a label, and were measured"


def _leaks(outcome: ScoredOutcome, scored: int) -> Iterator[str]:
    job = outcome.job
    if not job.guests:
        yield f"{job.active} scored its own rows with its own model; nothing left it."
        return
    if isinstance(outcome.model, SavedNetwork):
        for party in job.passive:
            yield (
                f"{job.active} received {party}'s representation of {scored:,} rows in the clear: "
                f"{outcome.model.width} numbers for each row, made of {party}'s columns by its network."
            )
    for party in job.guests if isinstance(outcome.model, SavedModel) else ():
        yield (
            f"{job.active} received {party}'s partial scores X·w in the clear for {scored:,} rows: one "
            "number for each row, never a column by itself. Scores of the same rows under several models say "
            "more about the columns than those under one."
        )
    for party in job.guests:
        if outcome.unseen.get(party):
            yield f"{job.active} learnt in how many rows {party} has categories that no training row had."
    everybody = " and ".join(job.members)
    sizes = ", ".join(f"{party} {count:,}" for party, count in outcome.rows.items())
    when = " in an earlier job" if outcome.aligned.reused else ""
    yield (
        f"{everybody} each learnt{when} which {len(outcome.ids):,} of their own ids all of them have, and "
        f"the sizes of the sets of ids ({sizes}). Nobody received an id."
    )
    for party in outcome.aligned.described:
        yield ids_described(job.active, party)
    if job.mode == "online":
        passive = " and ".join(job.guests)
        yield f"{passive} saw which of its rows were asked for, and when."
