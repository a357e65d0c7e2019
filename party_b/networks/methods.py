"""Which models stage 2 trains, and what one of them is trained from and leaves."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from common.errors import JobCancelled
from common.nets import baselines
from common.nets.protect import Singles
from common.nets.recipe import Patience, Recipe
from common.nets.shape import NetSettings
from common.runtime.config.networks import NetJob, Run
from common.runtime.net_design import NetDesign, optimisation_of, shape_of
from common.types import Floats, Ints
from party_b.networks.rows import ActiveRows
from party_b.networks.teacher import Taught

if TYPE_CHECKING:
    from common.nets.student import Epoch, StudentRows

ABLATION = "jpl − "
"""What the names of jpl without one term begin with."""

_PLAIN: Mapping[str, tuple[str, ...]] = {
    "local": ("local",),
    "splitnn": ("local",),
    "fpd": ("local", "local_twice", "fpd"),
    "jpl": ("local", "local_twice", "fpd", "jpl"),
}


def methods_of(job: NetJob, run: Run) -> dict[str, Recipe]:
    """Return the models of B's alone that a run trains, by name; the job's own one is among them."""
    if not job.data.validation_fraction:
        return {}
    known = baselines.methods(job.jpl.recipe(), job.model.members)
    wanted: Sequence[str] = _PLAIN[job.algorithm]
    if job.compare is not None:
        wanted = (*job.compared, job.algorithm)
    found = {name: known[name] for name in known if name in wanted}
    if job.compare is not None and job.compare.ablation and run.overlap == 1.0 and job.passive:
        found |= {f"{ABLATION}{term}": one for term, one in baselines.ablations(known["jpl"]).items()}
    return {name: one for name, one in found.items() if job.passive or not one.needs_teacher}


@dataclass(frozen=True, slots=True, eq=False)
class StudentTask:
    """Everything that a worker needs to train one model of B's alone; may be seen by B alone.

    Attributes:
        design: B's rows, encoded.
        labels: 0 and 1, (n,).
        training: Rows to train on.
        validation: Rows that say when to stop.
        test: Rows that only measure.
        taught: Rows that the split network was trained on, in the order of what follows.
        representations: h of all passive parties side by side, (k, w); None without A.
        logits: The split network's ŷ, (k,); None without A.
    """

    recipe: Recipe
    settings: NetSettings
    patience: Patience
    design: NetDesign
    labels: Floats = field(repr=False)
    training: Ints = field(repr=False)
    validation: Ints = field(repr=False)
    test: Ints = field(repr=False)
    taught: Ints = field(repr=False)
    representations: Singles | None = field(repr=False)
    logits: Floats | None = field(repr=False)

    def in_memory(self) -> StudentTask:
        """Return the same for a worker on another machine, which cannot see our files."""
        return replace(self, design=replace(self.design, rows=self.design.rows.in_memory()))


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A model of B's alone.

    Attributes:
        logits: Of the test rows, (t,).
        train_logits: Of the training and the validation rows, (r,).
        losses: Mean training loss of each epoch of the first member.
        validation: AUC and log loss of the validation rows after each epoch of the first member.
        seconds: Of computing.
        label_factor: By which the weights of its 0/1 labels were multiplied.
        taught: Whether it followed the split network.
        weights: As safetensors.
    """

    logits: Floats = field(repr=False)
    train_logits: Floats = field(repr=False)
    losses: tuple[float, ...]
    validation: tuple[Mapping[str, float | None], ...]
    seconds: float
    label_factor: float
    taught: bool
    weights: bytes = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the weights."""
        return {
            "logits": self.logits.tolist(),
            "train_logits": self.train_logits.tolist(),
            "losses": list(self.losses),
            "validation": [dict(one) for one in self.validation],
            "seconds": self.seconds,
            "label_factor": self.label_factor,
            "taught": self.taught,
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Trained:
        """Return what `to_json` wrote, without weights."""
        return cls(
            np.array(said["logits"], dtype=np.float64),
            np.array(said["train_logits"], dtype=np.float64),
            tuple(said["losses"]),
            tuple(said["validation"]),
            float(said["seconds"]),
            float(said["label_factor"]),
            bool(said["taught"]),
            b"",
        )


def task_of(rows: ActiveRows, run: Run, recipe: Recipe, taught: Taught | None) -> StudentTask:
    """Return what a worker needs for one model of a run."""
    job, student = rows.job, rows.student(run)
    training = np.concatenate([student.shared, student.own])
    settings = NetSettings(shape_of(job), optimisation_of(job, len(training)), run.seed)
    known, logits = np.zeros(0, dtype=np.int64), None
    representations: Singles | None = None
    if taught is not None and recipe.needs_teacher:
        known, logits = rows.common[rows.parts(run).training], taught.logits
        parts = [taught.representations[party] for party in sorted(taught.representations)]
        representations = np.concatenate(parts, axis=1)
    return StudentTask(
        recipe,
        settings,
        job.patience,
        rows.design(run),
        rows.labels,
        training,
        student.validation,
        student.test,
        known,
        representations,
        logits,
    )


def train_student(task: StudentTask, stop: threading.Event | None = None) -> Trained:
    """Train one model and score what it is measured on; runs in a worker, with one thread.

    Raises:
        JobCancelled: `stop` was set.
        DataError, NumericError: As `Student.train`.
    """
    # torch is an extra, and a worker imports it only when it is asked for a network.
    from common.nets.student import Student
    from common.nets.threads import use_threads

    use_threads(1)
    began_s = time.process_time()

    def watch(_: Epoch) -> None:
        if stop is not None and stop.is_set():
            raise JobCancelled("the training was cancelled")

    model, course = Student.train(_rows_of(task), task.settings, task.recipe, task.patience, watch)
    rows = task.design.rows
    measured = np.concatenate([task.training, task.validation])
    first = [epoch for epoch in course if epoch.member == 0]
    return Trained(
        model.logits(rows.take(task.test)) if len(task.test) else np.zeros(0),
        model.logits(rows.take(measured)),
        tuple(epoch.loss for epoch in first),
        tuple(_plain(epoch) for epoch in first),
        time.process_time() - began_s,
        model.label_factor,
        model.taught,
        model.to_bytes(),
    )


def _rows_of(task: StudentTask) -> StudentRows:
    from common.nets.student import StudentRows, Teacher

    teacher = None
    if task.representations is not None and task.logits is not None:
        teacher = Teacher(task.taught, task.representations, task.logits)
    return StudentRows(
        task.design.rows, task.design.plan.layout, task.labels, task.training, task.validation, teacher
    )


def _plain(epoch: Epoch) -> dict[str, float | None]:
    scores = epoch.validation
    auc = scores.auc if math.isfinite(scores.auc) else None
    return {"auc": auc, "log_loss": scores.log_loss}
