"""A model of the active party's own columns, fitted exactly and without any message: algorithm `local`."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

from common.data.table import Table
from common.glm.labels import signed_labels
from common.glm.logistic import fit_logistic, logistic_objective
from common.glm.ridge import fit_ridge, penalties, ridge_objective, with_intercept
from common.rpc.greeting import package_version
from common.runtime.config.alone import AloneJob
from common.runtime.linear_design import LinearDesign, design_with_intercept, read_dataset
from common.runtime.state import MODEL_FILE, JobStore
from common.types import Floats
from party_b.job_life import JobLife, Tools
from party_b.jobs import ActiveJob
from party_b.regression.outcome import intercept_of, model_part, own_model
from party_b.reporting.classification import evaluate_classifier
from party_b.reporting.evaluation import (
    Evaluation,
    Objective,
    ScoredRows,
    evaluate_regression,
    predictions_csv,
)
from party_b.reporting.report import RowCounts, RunRecord, Traffic, report_html, report_json


@dataclass(frozen=True, slots=True, eq=False)
class _Fitted:
    """The active party's own model; may be seen by it alone."""

    table: Table
    design: LinearDesign
    labels: Floats = field(repr=False)
    weights: Floats = field(repr=False)
    loss: float

    def rows(self) -> ScoredRows:
        """Return all rows with their scores."""
        design = self.design
        features = design.matrix[:, : len(design.scaling.features)]
        return ScoredRows(features, self.labels, design.matrix @ self.weights, design.train, design.test)


class AloneConductor:
    """Fits and measures; `life` has nobody else in it."""

    def __init__(self, active: ActiveJob, job: AloneJob, tools: Tools) -> None:
        self._active = active
        self._job = job
        self._tools = tools
        self.life = JobLife(active, tools, ())

    async def run(self) -> None:
        """Read, fit, measure, report."""
        own, job, store = self._tools.own, self._job, self._tools.store
        with self.life.timed("preparing"):
            await self._active.enter("preparing", f"reading {job.data.dataset}")
            table = await asyncio.to_thread(read_dataset, own, job)
            design = await asyncio.to_thread(design_with_intercept, table.without(job.data.label), job)
        with self.life.timed("training"):
            await self._active.enter("training", f"fitting {len(design.train):,} training rows exactly")
            fitted = await self.life.watch.thread("training", _fit, table, design, job)
        with self.life.timed("evaluating"):
            await self._active.enter("evaluating", "measuring the model")
            evaluation = await self.life.watch.thread("evaluating", _evaluate, fitted, job)
        model = own_model(self._active.job_id, job, design, fitted.weights, 0)
        store.write_json(self._active.job_id, MODEL_FILE, model.to_json())
        await asyncio.to_thread(self._write, fitted, evaluation, store)

    def _write(self, fitted: _Fitted, evaluation: Evaluation, store: JobStore) -> None:
        job_id = self._active.job_id
        record = self._record(fitted, evaluation)
        store.write_json(job_id, "report.json", report_json(record))
        store.write_bytes(job_id, "report.html", report_html(record).encode())
        predictions = predictions_csv(fitted.table.ids, fitted.rows())
        store.write_bytes(job_id, "predictions_test.csv", predictions)

    def _record(self, fitted: _Fitted, evaluation: Evaluation) -> RunRecord:
        job, design, active = self._job, fitted.design, self._job.active
        rows = fitted.table.rows
        return RunRecord(
            settings=json.loads(job.canonical_json()),
            job_id=self._active.job_id,
            version=package_version(),
            parties={active: "active"},
            rows=RowCounts({active: rows}, rows, len(design.train), len(design.test)),
            rounds=0,
            converged=True,
            stopped_because="exact",
            loss_history=[fitted.loss],
            metrics=evaluation.metrics(),
            lift=None,
            seconds_total=sum(self.life.seconds.values()),
            seconds_by_phase=self.life.seconds,
            seconds_by_party={active: dict(self.life.watch.seconds)},
            traffic={active: Traffic(0, 0)},
            losses=evaluation.losses,
            leaks=[f"{active} trained on its own columns; nothing left it, and nobody learnt anything."],
            models={active: model_part(job, design, fitted.weights)},
            notes=[*design.notes],
            ended_at=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        )


def _fit(table: Table, design: LinearDesign, job: AloneJob) -> _Fitted:
    labels, columns = table.column(job.data.label), len(design.scaling.features)
    kind, l2 = intercept_of(job), job.model.l2
    X, y = design.matrix[design.train][:, :columns], labels[design.train]
    complete, penalty = with_intercept(X, kind), penalties(columns, l2, kind)
    if job.model.loss == "squared":
        weights = fit_ridge(X, y, l2, kind)
        return _Fitted(table, design, labels, weights, ridge_objective(complete, y, weights, penalty))
    signs = signed_labels(labels, job.data.label).values[design.train]
    weights = fit_logistic(X, signs, l2, kind)
    return _Fitted(table, design, labels, weights, logistic_objective(complete, signs, weights, penalty))


def _evaluate(fitted: _Fitted, job: AloneJob) -> Evaluation:
    rows, objective = fitted.rows(), Objective(job.model.l2, intercept_of(job))
    if job.model.loss == "logistic":
        return evaluate_classifier(rows, signed_labels(fitted.labels, job.data.label), objective)
    return evaluate_regression(rows, objective)
