"""What a finished job with networks leaves at B: its part of the model, the report, the predictions."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from common.glm.losses import probabilities
from common.rpc.greeting import package_version
from common.rpc.pb import job_pb2 as pb
from common.runtime.checkpoint import Checkpoint
from common.runtime.config.networks import NetJob
from common.runtime.epoch_store import EpochStore
from common.runtime.saved_network import Part, SavedNetwork, keep_network, missing_rules
from common.runtime.state import JobStore
from common.types import Floats, Ints
from party_b.networks.choices import sentences
from party_b.networks.findings import (
    Results,
    findings_of,
    lift_of,
    metrics_of,
    scores_by_model,
    undecided,
)
from party_b.networks.leaks import NetSize, net_flows, net_leaks
from party_b.networks.rows import ActiveRows
from party_b.networks.stage_one import StageOne
from party_b.networks.students import WEIGHTS_FILE, Students
from party_b.networks.teacher import Taught, TeacherShelf
from party_b.reporting.report import (
    RowCounts,
    RunRecord,
    computing_by_party,
    report_html,
    report_json,
    roles_of,
    traffic_by_party,
)


@dataclass(slots=True, eq=False)
class NetOutcome:
    """Everything B knows of a job with networks; complete when it is written down.

    Attributes:
        rows: B's rows.
        stage_one: What stage 1 said.
        teachers: What each run's split network knows; none for B alone.
        students: The models of B's alone, by run and method.
        replies: What each passive party said when it was released.
        losses: Parties that were lost and came back, in words.
    """

    job_id: str
    job: NetJob
    rows: ActiveRows
    stage_one: StageOne
    teachers: Sequence[Taught] = ()
    students: Students = field(default_factory=dict)
    replies: Mapping[str, pb.CloseJobReply] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    computing: Mapping[str, float] = field(default_factory=dict)
    own_traffic: tuple[int, int] = (0, 0)
    losses: tuple[str, ...] = ()

    def warnings(self) -> list[str]:
        """Return what its operator should know before the numbers are read."""
        return undecided(scores_by_model(self.results))

    @property
    def results(self) -> Results:
        """Everything that was trained."""
        return Results(self.rows, self.teachers, self.students)


def active_half(outcome: NetOutcome, epoch: int, store: JobStore, shelf: TeacherShelf) -> SavedNetwork:
    """Return B's half of a split network as model.json keeps it, having written its weights."""
    weights = shelf.weights(outcome.job.runs[0])
    return _saved(outcome, "active half", epoch, keep_network(store, outcome.job_id, weights))


def student_model(outcome: NetOutcome, store: JobStore) -> SavedNetwork:
    """Return a model of B's alone as model.json keeps it, having written its weights."""
    weights = EpochStore(Checkpoint.of(store, outcome.job_id)).read(WEIGHTS_FILE)
    own = outcome.results.own_student
    epochs = len(own.losses) if own is not None else 0
    return _saved(outcome, "student", epochs, keep_network(store, outcome.job_id, weights))


def _saved(outcome: NetOutcome, part: Part, rounds: int, digest: str) -> SavedNetwork:
    job, rows = outcome.job, outcome.rows
    plan = rows.design(job.runs[0]).plan
    return SavedNetwork(
        job_id=outcome.job_id,
        job=job.job,
        party=job.active,
        algorithm=job.algorithm,
        part=part,
        active=job.active,
        passive=job.scorers,
        rounds=rounds,
        plan=plan,
        missing=missing_rules(rows.head, plan),
        network_sha256=digest,
        width=job.model.bottom[-1],
        label=job.data.label,
        positive=job.data.positive,
        notes=tuple(rows.head.intake.sentences()),
    )


def write_net_artifacts(outcome: NetOutcome, store: JobStore) -> None:
    """Write report.json, report.html and predictions_test.csv into B's state."""
    record = _record(outcome)
    store.write_json(outcome.job_id, "report.json", report_json(record))
    store.write_bytes(outcome.job_id, "report.html", report_html(record).encode())
    _, scores = outcome.results.own_test()
    chosen = outcome.rows.student(outcome.job.runs[0]).test[: len(scores)]
    store.write_bytes(outcome.job_id, "predictions_test.csv", _predictions(outcome, chosen, scores))


def _record(outcome: NetOutcome) -> RunRecord:
    job, rows, results = outcome.job, outcome.rows, outcome.results
    findings, losses = findings_of(results), _loss_history(outcome)
    train_labels, train_scores = results.own_train()
    size = _size(outcome)
    return RunRecord(
        settings=json.loads(job.canonical_json()),
        job_id=outcome.job_id,
        version=package_version(),
        parties=roles_of(job),
        rows=RowCounts(outcome.stage_one.counts, size.common or rows.head.rows, len(train_labels), size.test),
        rounds=len(losses),
        converged=len(losses) < job.train.epochs,
        stopped_because=_stopped(job, len(losses)),
        loss_history=losses,
        metrics={"train": metrics_of(train_labels, train_scores), "test": metrics_of(*results.own_test())},
        lift=lift_of(results),
        seconds_total=sum(outcome.seconds.values()),
        seconds_by_phase=outcome.seconds,
        seconds_by_party=computing_by_party(job.active, outcome.computing, outcome.replies),
        traffic=traffic_by_party(job.active, outcome.own_traffic, outcome.replies),
        leaks=net_leaks(job, size, findings),
        models={},
        notes=[*_notes(outcome), *sentences(findings.choices, findings.own, job.active)],
        flows=net_flows(job, size),
        networks=findings,
        ended_at=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    )


def _size(outcome: NetOutcome) -> NetSize:
    run, rows = outcome.job.runs[0], outcome.rows
    parts = rows.parts(run) if len(rows.common) else None
    _, scores = outcome.results.own_test()
    return NetSize(
        counts=outcome.stage_one.counts,
        columns=outcome.stage_one.columns,
        common=len(rows.common),
        trained=0 if parts is None else len(parts.fit),
        validation=0 if parts is None else len(parts.validation),
        common_test=0 if parts is None else len(parts.test),
        test=len(scores),
        epochs=sum(taught.progress.epoch for taught in outcome.teachers),
        runs=len(outcome.job.runs),
        reused=outcome.stage_one.reused,
    )


def _loss_history(outcome: NetOutcome) -> Sequence[float]:
    """Return the losses of the split network, or of B's own network where there is none."""
    if outcome.teachers:
        return outcome.teachers[0].progress.losses
    own = outcome.results.own_student
    return () if own is None else own.losses


def _stopped(job: NetJob, epochs: int) -> Literal["patience", "epochs"]:
    return "patience" if epochs < job.train.epochs else "epochs"


def _notes(outcome: NetOutcome) -> list[str]:
    rows = outcome.rows
    notes = [*outcome.warnings(), *rows.head.intake.sentences(), rows.label_note]
    notes += outcome.stage_one.notes
    if outcome.job.passive and not outcome.job.scorers:
        own = rows.student(outcome.job.runs[0])
        notes.append(
            f"{len(own.shared):,} common rows and {len(own.own):,} rows of {outcome.job.active}'s own were "
            f"trained on, {len(own.validation):,} said when to stop"
        )
    return [*notes, *(f"lost and back: {loss}" for loss in outcome.losses)]


def _predictions(outcome: NetOutcome, chosen: Ints, scores: Floats) -> bytes:
    """Return the test rows as CSV: id, partition, y, score (a logit), probability."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "partition", "y", "score", "probability"])
    rows, shares = outcome.rows, probabilities(scores)
    for row, score, share in zip(chosen, scores, shares, strict=True):
        label = repr(float(rows.labels[row]))
        writer.writerow([rows.head.ids[row], "test", label, repr(float(score)), repr(float(share))])
    return text.getvalue().encode()
