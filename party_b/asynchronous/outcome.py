"""What a finished VFB² job leaves at the party that conducted it: report and predictions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from common.glm.descent import lower_by, trouble
from common.glm.score_fit import fit_scores, score_objective
from common.glm.score_losses import loss_named, penalty_named
from common.rpc.greeting import package_version
from common.rpc.pb import job_pb2
from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.state import JobStore
from common.runtime.vfb2.columns import Columns, Labels
from common.types import Role
from party_b.alignment import Aligned
from party_b.asynchronous.epochs import EpochBook
from party_b.asynchronous.leaks import Vfb2Size, vfb2_flows, vfb2_leaks
from party_b.asynchronous.trained import Vfb2Trained
from party_b.reporting.classification import classified
from party_b.reporting.evaluation import Evaluation, ScoredRows, predictions_csv, regressed
from party_b.reporting.report import (
    ModelPart,
    RowCounts,
    RunRecord,
    computing_by_party,
    report_html,
    report_json,
    roles_of,
    traffic_by_party,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vfb2Outcome:
    """Everything B knows when the job has been closed everywhere.

    Attributes:
        trained: Weights, scores, and what every party said at the end.
        book: Objectives and why training ended.
        interruptions: Losses of parties after which the job went on, in words.
    """

    job_id: str
    job: Vfb2Job
    aligned: Aligned
    columns: Columns
    ids: Sequence[str] = field(repr=False)
    labels: Labels = field(repr=False)
    trained: Vfb2Trained
    book: EpochBook
    interruptions: Sequence[str]
    seconds: Mapping[str, float]
    computing: Mapping[str, float]
    replies: Mapping[str, job_pb2.CloseJobReply]
    own_traffic: tuple[int, int]

    def lower_by(self) -> float:
        """Return how much lower the objective surely could be: by a step of our own block alone."""
        columns, loss = self.columns, self.job.train.loss
        labels, scores = self.labels.values[columns.train_rows], self.trained.scores[0]
        penalty = penalty_named(loss, columns.penalties)
        return lower_by(columns.train, self.trained.weights, penalty, scores, labels, loss_named(loss))

    def trouble(self) -> str:
        """Return what a user should know of how training went, and do; empty when it went well."""
        found = trouble(self.book.objectives, self.lower_by())
        if not found:
            return ""
        if self.job.train.update == "sgd":
            return f"{found}. sgd needs a step that falls, slowly: `train.decay`, and more epochs."
        return (
            f"{found}. Updates may be older than the step bears: halve `train.learning_rate` or "
            "`train.max_staleness`, or take more epochs."
        )


def write_vfb2(outcome: Vfb2Outcome, store: JobStore) -> None:
    """Measure the model and write report.json, report.html and predictions_test.csv into B's state."""
    rows = _scored_rows(outcome)
    record = _record(outcome, _evaluate(outcome, rows))
    store.write_json(outcome.job_id, "report.json", report_json(record))
    store.write_bytes(outcome.job_id, "report.html", report_html(record).encode())
    store.write_bytes(outcome.job_id, "predictions_test.csv", predictions_csv(outcome.ids, rows))


def _scored_rows(outcome: Vfb2Outcome) -> ScoredRows:
    columns = outcome.columns
    scores = np.zeros(len(outcome.labels.values))
    scores[columns.train_rows], scores[columns.test_rows] = outcome.trained.scores
    nothing = np.zeros((len(scores), 0))  # B alone is fitted below, on rows that may be sparse
    return ScoredRows(nothing, outcome.labels.values, scores, columns.train_rows, columns.test_rows)


def _evaluate(outcome: Vfb2Outcome, rows: ScoredRows) -> Evaluation:
    """Measure the federation's scores, and B alone: its own columns at the optimum of the same objective."""
    columns, job, labels = outcome.columns, outcome.job, outcome.labels
    y, loss = labels.values[columns.train_rows], job.train.loss
    weights = fit_scores(columns.train, y, columns.penalties, loss)
    alone = np.zeros(len(rows.scores))
    for positions, part in ((columns.train_rows, columns.train), (columns.test_rows, columns.test)):
        alone[positions] = part.scores(np.arange(len(positions)), weights)
    objective = score_objective(columns.train, y, weights, columns.penalties, loss)
    if labels.signed is not None:
        return classified(rows, labels.signed, alone, objective)
    return regressed(rows, alone, objective)


def _record(outcome: Vfb2Outcome, evaluation: Evaluation) -> RunRecord:
    job, book, columns = outcome.job, outcome.book, outcome.columns
    size = Vfb2Size(
        columns=outcome.trained.widths,
        ids=outcome.trained.rows,
        train=len(columns.train_rows),
        test=len(columns.test_rows),
        epochs=len(book.objectives) - 1,
        updates={name: int(count) for name, count in book.require_end().cut.items()},
        shared=outcome.aligned.shared,
        reused=outcome.aligned.reused,
        computing=computing_by_party(job.active, outcome.computing, outcome.replies),
    )
    features = columns.preprocessing.features
    return RunRecord(
        settings=json.loads(job.canonical_json()),
        job_id=outcome.job_id,
        version=package_version(),
        parties=roles_of(job),
        rows=RowCounts(outcome.trained.rows, len(outcome.labels.values), size.train, size.test),
        rounds=size.epochs,
        converged=book.converged,
        stopped_because="tolerance" if book.converged else "epochs",
        loss_history=book.objectives[1:],
        metrics=evaluation.metrics(),
        lift=evaluation.lift,
        seconds_total=sum(outcome.seconds.values()),
        seconds_by_phase=outcome.seconds,
        seconds_by_party=size.computing,
        traffic=traffic_by_party(job.active, outcome.own_traffic, outcome.replies),
        leaks=vfb2_leaks(job, size),
        models={
            job.active: ModelPart(
                features,
                outcome.trained.weights[: len(features)].tolist(),
                float(outcome.trained.weights[-1]) if job.data.intercept else None,
                columns.preprocessing.to_json(),
            )
        },
        notes=[*columns.notes, *_notes(outcome), *evaluation.notes],
        flows=vfb2_flows(job, size),
        reference_losses={f"{job.active} alone": evaluation.local_objective},
        details={"vfb2": _details(outcome, size)},
        ended_at=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    )


def _details(outcome: Vfb2Outcome, size: Vfb2Size) -> dict[str, object]:
    """Return what only asynchronous training has to say."""
    training_s = outcome.seconds.get("training", 0.0)
    return {
        "objective_at_start": outcome.book.objectives[0],
        "objective_seconds": [round(value, 4) for value in outcome.book.seconds],
        "learning_rate": outcome.book.learning_rate,
        "surely_lower_by": outcome.lower_by(),
        "updates": dict(size.updates),
        "updates_per_second": sum(size.updates.values()) / training_s if training_s else None,
        "staleness": {name: _histogram(told) for name, told in sorted(outcome.trained.finished.items())},
        "digest": {name: told.digest for name, told in sorted(outcome.trained.finished.items())},
        "same_updates_everywhere": len({told.digest for told in outcome.trained.finished.values()}) == 1,
        "sessions": outcome.book.session,
    }


def _histogram(told: pb.Finished) -> dict[str, int]:
    return {str(stale): int(told.staleness[stale]) for stale in sorted(told.staleness)}


def _notes(outcome: Vfb2Outcome) -> list[str]:
    notes = [] if outcome.labels.signed is None else [outcome.labels.signed.describe()]
    wanted, rows = outcome.job.train.batch_size, len(outcome.columns.train_rows)
    if wanted > rows:
        notes.append(f"train.batch_size is {wanted:,}: every batch was all {rows:,} training rows")
    notes += outcome.aligned.notes
    notes += [f"the job was interrupted and went on: {told}" for told in outcome.interruptions]
    if outcome.book.chosen:
        notes.append(outcome.book.chosen)
    notes.append(f"training ended because {outcome.book.because}")
    if found := outcome.trouble():
        notes.append(found)
    return notes


def _roles(job: Vfb2Job) -> dict[str, Role]:
    roles: dict[str, Role] = dict.fromkeys(job.passive, "passive")
    return {**roles, **dict.fromkeys(job.dominators, "active")}
