"""How long B waits for the prediction of one row, from its cells to the probability; nobody is asked."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.jpl.data import split
from benchmarks.jpl.sets import load
from benchmarks.jpl.trials import Plan
from common.nets import baselines
from common.nets.fields import FieldPlan
from common.nets.recipe import Patience
from common.nets.shape import NetSettings
from common.nets.student import Student, StudentRows, Teacher
from common.nets.threads import use_threads

_PREDICTIONS = 500


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one prediction, in milliseconds.

    Attributes:
        median_ms: Of encoding and scoring.
        p99_ms: Of encoding and scoring.
        scoring_ms: Median of the network alone.
    """

    median_ms: float
    p99_ms: float
    scoring_ms: float


def measure(plan: Plan) -> Latency:
    """Train a JPL student for one epoch and ask it for single rows; each answer is checked against the
    batch's.

    Raises:
        RuntimeError: A single prediction is not that of the batch.
    """
    use_threads(1)
    source = load(plan.folder, plan.name)
    case = split(source, 1, 0.8, plan.most_rows, plan.fields)
    known = np.zeros((len(case.shared), plan.shape.width), dtype=np.float32)
    teacher = Teacher(case.shared, known + 1, np.zeros(len(case.shared)))
    data = StudentRows(case.rows_b, case.layout_b, case.labels, case.training, case.validation, teacher)
    settings = NetSettings(plan.shape, plan.optimisation, 1)
    student, _ = Student.train(data, settings, baselines.jpl(), Patience(most_epochs=1))
    fields = FieldPlan.fit(source.table_b, plan.fields)
    batch = student.probabilities(case.rows_b)
    whole, alone = [], []
    for at in range(_PREDICTIONS):
        one = source.table_b.take(np.array([at]))
        start_s = time.perf_counter()
        fields.encode(one)
        encoded_s = time.perf_counter()
        chance = student.probabilities(case.rows_b.take(np.array([at])))
        end_s = time.perf_counter()
        if abs(chance[0] - batch[at]) > 1e-5:
            raise RuntimeError("a single prediction is not that of the batch")
        whole.append(end_s - start_s)
        alone.append(end_s - encoded_s)
    median, p99 = np.percentile(whole, [50, 99]) * 1e3
    return Latency(float(median), float(p99), float(np.median(alone) * 1e3))
