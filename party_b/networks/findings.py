"""What a job with networks found out: every model on the same rows, and whether A is worth it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from common.glm.losses import probabilities
from common.glm.metrics import classification_metrics
from common.nets import lift
from common.nets.scores import CalibrationBin, calibration, scores_of
from common.runtime.config.networks import NetJob
from common.types import Floats, Ints
from party_b.networks.choices import Choice
from party_b.networks.methods import ABLATION, Trained, methods_of
from party_b.networks.rows import ActiveRows
from party_b.networks.students import Students
from party_b.networks.teacher import Taught
from party_b.reporting.evaluation import Lift, Metrics, Partition, interval

SPLIT = "splitnn"

NAMES: Mapping[str, str] = {
    "local": "local",
    "local_twice": "local ×2",
    "fpd": "fpd",
    "fpd_twice": "fpd ×2",
    "jpl": "jpl",
    "jpl_twice": "jpl ×2",
    "jpl_without_a": "jpl without A",
    "jpl_paper": "jpl, paper's weights",
    SPLIT: "splitnn",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One method, on the test rows of the job's own run.

    Attributes:
        method: As a reader knows it.
        metrics: On all of B's test rows; None for a split network, which scores common rows only.
        common: On the common test rows; None without any.
    """

    method: str
    metrics: Metrics | None
    common: Metrics | None


@dataclass(frozen=True, slots=True)
class Compared:
    """The job's method against another one, over seeds.

    Attributes:
        method: Which one is meant.
        reference: What it is compared with.
        overlap: Part of the common training rows that was used.
        mean: Of the difference in AUC, in points (0.01).
        half_width: Of the 95 % interval; NaN for one seed.
        seeds: Pairs.
    """

    method: str
    reference: str
    overlap: float
    mean: float
    half_width: float
    seeds: int

    @property
    def says(self) -> str:
        """What the interval says, in a word."""
        if self.seeds < 2 or abs(self.mean) <= self.half_width:
            return "no difference shown"
        return "better" if self.mean > 0 else "worse"


@dataclass(frozen=True, slots=True)
class NetFindings:
    """Everything that a report says about networks besides what it says of every job.

    Attributes:
        own: The job's own method.
        methods: In the order in which they are shown.
        compared: Differences over seeds; empty without `compare`.
        ablation: Of each term of jpl: without it, minus with it.
        by_overlap: Mean AUC and half of its 95 % interval by method and overlap.
        verdict: Sentences, the most important one first.
        choices: What validation rows chose for students that have a teacher.
        calibration: Of the job's own model on test rows.
        validation: AUC and log loss by epoch, of the network that `loss_history` speaks of.
        attacks: How well attacks on cut-layer gradients rank labels, by passive party.
        rounding: What the wire rounds away, relative; empty with float32.
    """

    own: str
    methods: Sequence[Measured]
    compared: Sequence[Compared] = ()
    ablation: Sequence[Compared] = ()
    by_overlap: Mapping[str, Mapping[float, tuple[float, float]]] = field(default_factory=dict)
    verdict: Sequence[str] = ()
    choices: Sequence[Choice] = ()
    calibration: Sequence[CalibrationBin] = ()
    calibration_error: float = math.nan
    validation: Sequence[Mapping[str, float | None]] = ()
    attacks: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    rounding: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the `networks` of report.json."""
        return {
            "own": self.own,
            "methods": {one.method: {"test": one.metrics, "common_test": one.common} for one in self.methods},
            "compared": [asdict(one) | {"says": one.says} for one in self.compared],
            "ablation": [asdict(one) | {"says": one.says} for one in self.ablation],
            "auc_by_overlap": {
                method: [
                    {"overlap": overlap, "auc": mean, "half_width_95": half}
                    for overlap, (mean, half) in points.items()
                ]
                for method, points in self.by_overlap.items()
            },
            "verdict": list(self.verdict),
            "choices": [asdict(one) for one in self.choices],
            "calibration": [asdict(one) for one in self.calibration],
            "calibration_error": self.calibration_error,
            "validation": list(self.validation),
            "attacks": self.attacks,
            "rounding": self.rounding,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """Everything that was trained.

    Attributes:
        rows: B's rows.
        teachers: By run; none for B alone.
        students: By run and method.
    """

    rows: ActiveRows
    teachers: Sequence[Taught]
    students: Students

    @property
    def job(self) -> NetJob:
        """The job."""
        return self.rows.job

    @property
    def own_student(self) -> Trained | None:
        """The job's own model, where it is B's alone."""
        return self.students.get((0, self.job.algorithm))

    def own_test(self) -> tuple[Floats, Floats]:
        """Return labels and scores of the job's own model on its test rows; empty if there are none."""
        rows, student = self.rows, self.rows.student(self.job.runs[0])
        own = self.own_student
        if own is not None:
            return rows.labels[student.test], own.logits
        scores = self.teachers[0].test_logits if self.teachers else None
        if scores is None:
            return np.zeros(0), np.zeros(0)
        return rows.labels[student.test[: student.common_test]], scores

    def own_train(self) -> tuple[Floats, Floats]:
        """Return labels and scores of the job's own model on training and validation rows."""
        own = self.own_student
        scores = self.teachers[0].logits if own is None else own.train_logits
        return self.rows.labels[self.train_rows()], scores

    def train_rows(self) -> Ints:
        """Return B's row numbers of the training and validation rows of the job's own model."""
        rows, run = self.rows, self.job.runs[0]
        if self.own_student is None:
            return np.asarray(rows.common[rows.parts(run).training])
        return self.student_rows()

    def student_rows(self) -> Ints:
        """Return B's row numbers of a student's training and validation rows, as in `train_logits`."""
        student = self.rows.student(self.job.runs[0])
        return np.concatenate([student.shared, student.own, student.validation])


def metrics_of(labels: Floats, scores: Floats) -> Metrics | None:
    """Return the metrics of logits; None without rows."""
    return classification_metrics(labels, scores, probabilities(scores)) if len(labels) else None


def lift_of(results: Results) -> Lift | None:
    """Return the job's own model beside B alone on the same rows; None where one of them is missing.

    These are test rows, or training rows where there are no others.
    """
    local = results.students.get((0, "local"))
    labels, scores = results.own_test()
    which: Partition = "test" if len(labels) else "train"
    if which == "train":
        labels, scores = results.own_train()
    if local is None or not len(labels) or results.job.algorithm == "local":
        return None
    students = {name: trained for (run, name), trained in results.students.items() if run == 0}
    seen = {name: _scores_on(results, trained, which)[: len(labels)] for name, trained in students.items()}
    alone = seen.pop("local")
    signs = np.where(labels == 1.0, 1.0, -1.0)
    gain, half = interval(np.logaddexp(0.0, -signs * alone) - np.logaddexp(0.0, -signs * scores))
    found = {name: metrics_of(labels, logits) for name, logits in seen.items()}
    others = {name: metrics for name, metrics in found.items() if metrics is not None}
    measured = _measured_split(results)
    if measured is not None and measured.common is not None:
        others[SPLIT] = measured.common
    found_local, found_own = metrics_of(labels, alone), metrics_of(labels, scores)
    if found_local is None or found_own is None:
        return None
    return Lift(which, len(labels), found_local, found_own, gain, half, "log_loss", others)


def _scores_on(results: Results, trained: Trained, which: Partition) -> Floats:
    """Return a student's scores of test rows, or of those rows that the job's own model was trained on."""
    if which == "test":
        return trained.logits
    theirs, wanted = results.student_rows(), results.train_rows()
    order = np.argsort(theirs)
    return np.asarray(trained.train_logits[order[np.searchsorted(theirs[order], wanted)]])


def findings_of(results: Results) -> NetFindings:
    """Return what the job found out."""
    job, own = results.job, results.job.algorithm
    labels, scores = results.own_test()
    first = results.teachers[0].progress.validation if results.teachers else ()
    if not results.teachers and results.own_student is not None:
        first = results.own_student.validation
    compared, ablation, verdict = _compared(results)
    defined = scores_of(labels, scores) if len(labels) else None
    return NetFindings(
        own=NAMES[own],
        methods=_methods(results),
        compared=compared,
        ablation=ablation,
        by_overlap=_by_overlap(results) if job.compare is not None and job.compare.overlap else {},
        verdict=verdict,
        choices=_choices(results),
        calibration=calibration(labels, probabilities(scores)) if len(labels) else (),
        calibration_error=math.nan if defined is None else defined.calibration_error,
        validation=first,
        attacks=results.teachers[0].leaks if results.teachers else {},
        rounding=_rounding(results),
    )


def _methods(results: Results) -> list[Measured]:
    student = results.rows.student(results.job.runs[0])
    labels, found = results.rows.labels[student.test], []
    for (run, name), trained in results.students.items():
        if run == 0 and not name.startswith(ABLATION):
            common = metrics_of(labels[: student.common_test], trained.logits[: student.common_test])
            found.append(Measured(NAMES[name], metrics_of(labels, trained.logits), common))
    split = _measured_split(results)
    return [*found, split] if split is not None else found


def _choices(results: Results) -> list[Choice]:
    """Return what was chosen for every student that had a teacher, ablations aside."""
    found = []
    for run in results.job.runs:
        for name, recipe in methods_of(results.job, run).items():
            if recipe.needs_teacher and not name.startswith(ABLATION):
                one = results.students[run.number, name]
                found.append(Choice(NAMES[name], run.seed, run.overlap, one.taught, one.label_factor))
    return found


def _measured_split(results: Results) -> Measured | None:
    if not results.teachers or results.teachers[0].test_logits is None:
        return None
    student = results.rows.student(results.job.runs[0])
    labels = results.rows.labels[student.test[: student.common_test]]
    return Measured(NAMES[SPLIT], None, metrics_of(labels, results.teachers[0].test_logits))


def scores_by_model(results: Results) -> dict[str, Floats]:
    """Return the scores of every model of the job's own run on its test rows, by the reader's name."""
    found = {NAMES.get(name, name): one.logits for (run, name), one in results.students.items() if run == 0}
    tested = results.teachers[0].test_logits if results.teachers else None
    return found if tested is None else {**found, NAMES[SPLIT]: tested}


def undecided(scores: Mapping[str, Floats]) -> list[str]:
    """Return a sentence for each model that gives all of several rows one and the same score."""
    return [
        f"{name} gives all {len(values):,} test rows the same score: it learnt nothing that tells them "
        "apart. More rows, wider layers, another train.seed or a smaller embedding_l2 may help."
        for name, values in scores.items()
        if len(values) > 1 and values.min() == values.max()
    ]


def _outcomes(results: Results, which: str) -> list[lift.Outcome]:
    """Return every model's scores on `all` test rows, or on the `common` ones."""
    found = []
    for run in results.job.runs:
        student = results.rows.student(run)
        count = student.common_test if which == "common" else len(student.test)
        labels = results.rows.labels[student.test[:count]]
        if not count:
            continue
        for name in methods_of(results.job, run):
            scores = scores_of(labels, results.students[run.number, name].logits[:count])
            found.append(lift.Outcome(name, run.seed, run.overlap, scores))
        taught = results.teachers[run.number].test_logits if results.teachers else None
        if taught is not None and which == "common":
            found.append(lift.Outcome(SPLIT, run.seed, run.overlap, scores_of(labels, taught)))
    return found


def _compared(results: Results) -> tuple[list[Compared], list[Compared], list[str]]:
    """Return the job's method against the others, the ablation, and what may be said."""
    job, own = results.job, results.job.algorithm
    everywhere, common = _outcomes(results, "all"), _outcomes(results, "common")
    compared, ablation = [], []
    differences: dict[str, lift.Difference] = {}
    for overlap in dict.fromkeys(run.overlap for run in job.runs):
        names = [name for name in NAMES if any(one.method == name for one in common or everywhere)]
        for name in (name for name in names if name != own):
            outcomes = common if SPLIT in (name, own) else everywhere
            difference = _paired(outcomes, own, name, overlap)
            if difference is None:
                continue
            compared.append(_as_compared((NAMES[own], NAMES[name]), overlap, difference))
            if overlap == 1.0:
                differences[name] = difference
    for name in dict.fromkeys(one.method for one in everywhere if one.method.startswith(ABLATION)):
        difference = _paired(everywhere, name, "jpl", 1.0)
        if difference is not None:
            ablation.append(_as_compared((name, NAMES["jpl"]), 1.0, difference))
    verdict = lift.verdict(differences) if own == "jpl" else _plain_verdict(own, differences)
    return (compared, ablation, verdict) if job.compare is not None else ([], [], verdict)


def _paired(
    outcomes: Sequence[lift.Outcome], method: str, reference: str, overlap: float
) -> lift.Difference | None:
    methods = {one.method for one in outcomes if one.overlap == overlap and math.isfinite(one.test.auc)}
    if method not in methods or reference not in methods:
        return None
    return lift.paired(outcomes, method, reference, overlap)


def _as_compared(pair: tuple[str, str], overlap: float, found: lift.Difference) -> Compared:
    return Compared(*pair, overlap, found.mean, found.half_width, found.seeds)


def _plain_verdict(own: str, differences: Mapping[str, lift.Difference]) -> list[str]:
    """Return whether A is worth it, for methods other than jpl."""
    found = differences.get("local_twice") if own == "fpd" else differences.get("local")
    if found is None or own == "local":
        return []
    against = (
        "B's own model (two averaged)" if own == "fpd" and "local_twice" in differences else "B's own model"
    )
    shown = f"{NAMES[own]} − {against}: {found.mean:+.2f}"
    if found.seeds < 2:
        return [f"{shown} AUC points; one seed shows nothing, run several (compare: {{seeds: 5}})."]
    shown = f"{shown} ± {found.half_width:.2f} AUC points over {found.seeds} seeds"
    if found.above_zero:
        return [f"{shown}: A is worth it."]
    return [f"{shown}: A is not worth it." if found.below_zero else f"{shown}: no difference is shown."]


def _by_overlap(results: Results) -> dict[str, dict[float, tuple[float, float]]]:
    outcomes = _outcomes(results, "common")
    found: dict[str, dict[float, tuple[float, float]]] = {}
    shown = [name for name in NAMES if any(one.method == name for one in outcomes)]
    for name in shown:
        for overlap in sorted({run.overlap for run in results.job.runs}):
            aucs = np.array(
                [one.test.auc for one in outcomes if (one.method, one.overlap) == (name, overlap)]
            )
            if len(aucs) and np.isfinite(aucs).all():
                found.setdefault(NAMES[name], {})[overlap] = (float(aucs.mean()), lift.half_width(aucs))
    return found


def _rounding(results: Results) -> dict[str, float]:
    if results.job.train.wire == "float32" or not results.teachers:
        return {}
    return dict(results.teachers[0].rounding)
