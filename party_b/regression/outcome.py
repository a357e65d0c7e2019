"""What a finished job leaves at the active party: its part of the model, the report, the predictions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from common.glm.labels import signed_labels
from common.glm.ridge import Intercept
from common.rpc.greeting import package_version
from common.rpc.pb import job_pb2 as pb
from common.runtime.config.alone import TrainingJob
from common.runtime.config.job import JobConfig
from common.runtime.estimate import Estimate
from common.runtime.linear_design import LinearDesign
from common.runtime.saved_model import SavedModel, saved_loss
from common.runtime.state import JobStore
from common.types import Floats, Role
from party_b.alignment import Aligned
from party_b.regression.leaks import RunSize, flows_of, leaks_of
from party_b.reporting.classification import evaluate_classifier
from party_b.reporting.evaluation import (
    Evaluation,
    Objective,
    ScoredRows,
    evaluate_regression,
    predictions_csv,
)
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

# In the order in which they are fetched; the page for people comes after the file for scripts.
ARTIFACTS = (
    "report.json",
    "report.html",
    "predictions_test.csv",
    "predictions.csv",
    "model.json",
    "network.safetensors",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunOutcome:
    """Everything B knows when the job has been closed everywhere."""

    job_id: str
    job: JobConfig
    design: LinearDesign
    ids: Sequence[str] = field(repr=False)
    labels: Floats = field(repr=False)
    scores: Floats = field(repr=False)
    weights: Floats = field(repr=False)
    columns: Mapping[str, int]
    rows: Mapping[str, int]
    losses: Sequence[float | None]
    converged: bool
    plan: str
    expected: Estimate | None
    seconds: Mapping[str, float]
    computing: Mapping[str, float]
    aligned: Aligned
    replies: Mapping[str, pb.CloseJobReply]
    own_traffic: tuple[int, int]
    remarks: Sequence[str] = ()
    interruptions: Sequence[str] = ()


def own_model(
    job_id: str, job: TrainingJob, design: LinearDesign, weights: Floats, rounds: int
) -> SavedModel:
    """Return B's part of the model as model.json keeps it."""
    columns = len(design.scaling.features)
    return SavedModel(
        job_id=job_id,
        job=job.job,
        party=job.active,
        algorithm=job.algorithm,
        loss=saved_loss(job),
        active=job.active,
        passive=job.scorers,
        rounds=rounds,
        preprocessing=design.scaling,
        coefficients=weights[:columns],
        intercept=float(weights[-1]) if job.data.intercept else None,
        label=job.data.label,
        positive=job.data.positive,
        notes=design.notes,
    )


def write_artifacts(outcome: RunOutcome, store: JobStore) -> None:
    """Measure the model and write report.json, report.html and predictions_test.csv into B's state."""
    job, design = outcome.job, outcome.design
    features = design.matrix[:, :-1] if job.data.intercept else design.matrix
    rows = ScoredRows(features, outcome.labels, outcome.scores, design.train, design.test)
    objective = Objective(job.model.l2, intercept_of(job))
    if job.algorithm == "he_logistic":
        evaluation = evaluate_classifier(rows, signed_labels(outcome.labels, job.data.label), objective)
    else:
        evaluation = evaluate_regression(rows, objective)
    record = _record(outcome, evaluation)
    store.write_json(outcome.job_id, "report.json", report_json(record))
    store.write_bytes(outcome.job_id, "report.html", report_html(record).encode())
    store.write_bytes(outcome.job_id, "predictions_test.csv", predictions_csv(outcome.ids, rows))


def _record(outcome: RunOutcome, evaluation: Evaluation) -> RunRecord:
    job, design = outcome.job, outcome.design
    size = RunSize(
        columns=outcome.columns,
        ids=outcome.rows,
        train=len(design.train),
        test=len(design.test),
        rounds=len(outcome.losses),
        shared=outcome.aligned.shared,
        alignment="reused" if outcome.aligned.reused else "new",
        described=outcome.aligned.described,
    )
    return RunRecord(
        settings=json.loads(job.canonical_json()),
        job_id=outcome.job_id,
        version=package_version(),
        parties=roles_of(job),
        rows=RowCounts(outcome.rows, len(outcome.labels), size.train, size.test),
        rounds=size.rounds,
        converged=outcome.converged,
        stopped_because=_stopped(outcome),
        loss_history=outcome.losses,
        metrics=evaluation.metrics(),
        lift=evaluation.lift,
        seconds_total=sum(outcome.seconds.values()),
        seconds_by_phase=outcome.seconds,
        seconds_by_party=computing_by_party(job.active, outcome.computing, outcome.replies),
        traffic=traffic_by_party(job.active, outcome.own_traffic, outcome.replies),
        losses=evaluation.losses,
        leaks=leaks_of(job, size),
        models={job.active: model_part(job, design, outcome.weights)},
        plan=outcome.plan,
        estimate=None if outcome.expected is None else outcome.expected.for_rounds(size.rounds),
        notes=[*_notes(outcome), *evaluation.notes],
        flows=flows_of(job, size),
        reference_losses={f"{job.active} alone": evaluation.local_objective},
        ended_at=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    )


def model_part(job: TrainingJob, design: LinearDesign, weights: Floats) -> ModelPart:
    """Return B's part of the model as the report shows it."""
    intercept = float(weights[-1]) if job.data.intercept else None
    names = design.scaling.features
    return ModelPart(names, weights[: len(names)].tolist(), intercept, design.scaling.to_json())


def _stopped(outcome: RunOutcome) -> str:
    """Return why training ended: conjugate gradients without a tolerance end when nothing more is gained."""
    if not outcome.converged:
        return "max_rounds"
    return "residual" if outcome.job.train.tolerance is None else "tolerance"


def _notes(outcome: RunOutcome) -> list[str]:
    notes = [*outcome.remarks, *outcome.design.notes, *outcome.aligned.notes]
    notes += [f"the job was interrupted and went on: {told}" for told in outcome.interruptions]
    if outcome.job.coordinator not in outcome.replies:
        notes.append(f"{outcome.job.coordinator} did not close the job, and its traffic is not known")
    return notes


def intercept_of(job: TrainingJob) -> Intercept:
    """Return whether the model has an intercept, and whether it is penalised."""
    if not job.data.intercept:
        return "none"
    return "penalized" if job.model.penalize_intercept else "free"


def _roles(job: JobConfig) -> dict[str, Role]:
    roles: dict[str, Role] = {job.active: "active", job.coordinator: "coordinator"}
    return {**dict.fromkeys(job.passive, "passive"), **roles}
