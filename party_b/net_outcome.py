"""What a finished job with networks leaves at B: its part of the model, the report, the predictions."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from common.glm.losses import probabilities
from common.glm.metrics import classification_metrics
from common.rpc.greeting import package_version
from common.rpc.pb import job_pb2 as pb
from common.runtime.config_net import NetJob
from common.runtime.saved_network import SavedNetwork, keep_network, missing_rules
from common.runtime.state import JobStore
from common.types import Floats, Ints, Role
from party_b.alignment import Aligned
from party_b.evaluation import Metrics
from party_b.net_leaks import net_flows, net_leaks
from party_b.net_rows import ActiveRows
from party_b.net_teacher import Taught, TeacherShelf
from party_b.report import RowCounts, RunRecord, Traffic, report_html, report_json


@dataclass(slots=True, eq=False)
class NetOutcome:
    """Everything B knows of a job with networks; complete when it is written down.

    Attributes:
        rows: B's rows.
        counts: Rows by party, before alignment.
        columns: Of every party's table.
        teachers: What each run's split network knows; none for B alone.
        replies: What each passive party said when it was released.
    """

    job_id: str
    job: NetJob
    rows: ActiveRows
    counts: Mapping[str, int]
    aligned: Aligned
    columns: Mapping[str, int] = field(default_factory=dict)
    teachers: Sequence[Taught] = ()
    replies: Mapping[str, pb.CloseJobReply] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    computing: Mapping[str, float] = field(default_factory=dict)
    own_traffic: tuple[int, int] = (0, 0)


def own_part(outcome: NetOutcome, epoch: int, store: JobStore, shelf: TeacherShelf) -> SavedNetwork:
    """Return B's part of a split network as model.json keeps it, its weights being beside it."""
    job, rows = outcome.job, outcome.rows
    return SavedNetwork(
        job_id=outcome.job_id,
        job=job.job,
        party=job.active,
        algorithm=job.algorithm,
        part="active half",
        active=job.active,
        passive=job.passive,
        rounds=epoch,
        plan=rows.design.plan,
        missing=missing_rules(rows.table, rows.design.plan),
        network_sha256=keep_network(store, outcome.job_id, shelf.weights(job.runs[0])),
        label=job.data.label,
        positive=job.data.positive,
        notes=tuple(rows.table.intake.sentences()),
    )


def write_net_artifacts(outcome: NetOutcome, store: JobStore) -> None:
    """Write report.json, report.html and predictions_test.csv into B's state."""
    record = _record(outcome)
    store.write_json(outcome.job_id, "report.json", report_json(record))
    store.write_bytes(outcome.job_id, "report.html", report_html(record).encode())
    parts = outcome.rows.parts(outcome.job.runs[0])
    scores = outcome.teachers[0].test_logits
    if scores is not None:
        text = _predictions(outcome, outcome.rows.common[parts.test], scores)
        store.write_bytes(outcome.job_id, "predictions_test.csv", text)


def metrics_of(labels: Floats, scores: Floats) -> Metrics:
    """Return the metrics of scores that are logits."""
    return classification_metrics(labels, scores, probabilities(scores))


def _record(outcome: NetOutcome) -> RunRecord:
    job, rows, teacher = outcome.job, outcome.rows, outcome.teachers[0]
    parts, progress = rows.parts(job.runs[0]), outcome.teachers[0].progress
    train = metrics_of(rows.labels[rows.common[parts.training]], teacher.logits)
    test = None
    if teacher.test_logits is not None:
        test = metrics_of(rows.labels[rows.common[parts.test]], teacher.test_logits)
    sent, received = outcome.own_traffic
    return RunRecord(
        settings=json.loads(job.canonical_json()),
        job_id=outcome.job_id,
        version=package_version(),
        parties=roles_of(job),
        rows=RowCounts(outcome.counts, len(rows.common), len(parts.training), len(parts.test)),
        rounds=progress.epoch,
        converged=progress.epoch < job.train.epochs,
        stopped_because="patience" if progress.epoch < job.train.epochs else "epochs",
        loss_history=progress.losses,
        metrics={"train": train, "test": test},
        lift=None,
        seconds_total=sum(outcome.seconds.values()),
        seconds_by_phase=outcome.seconds,
        seconds_by_party={job.active: dict(outcome.computing)}
        | {name: dict(reply.seconds) for name, reply in outcome.replies.items()},
        traffic={job.active: Traffic(sent, received)}
        | {name: Traffic(reply.sent_bytes, reply.received_bytes) for name, reply in outcome.replies.items()},
        leaks=net_leaks(outcome.job, outcome.counts),
        models={},
        notes=[*rows.table.intake.sentences(), rows.label_note],
        flows=net_flows(outcome.job),
        ended_at=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    )


def roles_of(job: NetJob) -> dict[str, Role]:
    """Return the role of every party that took part."""
    return {job.active: "active", **dict.fromkeys(job.passive, "passive")}


def _predictions(outcome: NetOutcome, chosen: Ints, scores: Floats) -> bytes:
    """Return the test rows as CSV: id, partition, y, score (a logit), probability."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "partition", "y", "score", "probability"])
    rows, shares = outcome.rows, probabilities(scores)
    for row, score, share in zip(chosen, scores, shares, strict=True):
        label = repr(float(rows.labels[row]))
        writer.writerow([rows.table.ids[row], "test", label, repr(float(score)), repr(float(share))])
    return text.getvalue().encode()
