"""One seed of one set: a teacher in this process, then every student, and the split network that needs A
beside."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks.jpl.data import Case, split
from benchmarks.jpl.sets import Source, load
from common.nets import baselines
from common.nets.attacks import GradientAttacks, LabelLeak
from common.nets.comparison import Trial, run_trial
from common.nets.fields import FieldSettings
from common.nets.lift import Outcome
from common.nets.pooled import Half
from common.nets.protect import NO_PROTECTION, OPEN_RELEASE, Protection, Release
from common.nets.recipe import Patience, Recipe
from common.nets.scores import scores_of
from common.nets.shape import NetSettings, NetShape, Optimisation
from common.nets.student import Student, StudentRows, Teacher
from common.nets.teaching import Guarding, SharedRows, Taught, teach
from common.nets.threads import use_threads
from common.types import Ints

SPLITNN = "splitnn (asks A)"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is the same for all seeds of a set.

    Attributes:
        folder: With the data.
        name: Of the set.
        most_rows: A random sample of so many rows; None for all.
        optimisation: Of teacher and students.
        shape: Of teacher and students.
        patience: Of teacher and students.
        fields: How columns become fields.
    """

    folder: Path
    name: str
    most_rows: int | None = None
    optimisation: Optimisation = field(default_factory=Optimisation)
    shape: NetShape = field(default_factory=NetShape)
    patience: Patience = field(default_factory=Patience)
    fields: FieldSettings = field(default_factory=FieldSettings)


@dataclass(frozen=True, slots=True)
class Guards:
    """What is done in stage 1 to what leaves a party, for one experiment.

    Attributes:
        label: How the table calls it.
        protection: Of gradients.
        release: Of representations.
    """

    label: str = "none"
    protection: Protection = NO_PROTECTION
    release: Release = OPEN_RELEASE


@dataclass(frozen=True, slots=True)
class Result:
    """What one seed gave."""

    outcomes: tuple[Outcome, ...]
    leak: LabelLeak


def run_seed(
    plan: Plan, seed: int, overlap: float, recipes: Mapping[str, Recipe], guards: Guards | None = None
) -> Result:
    """Train a teacher and every student of one seed at one overlap; in a worker, with one thread."""
    use_threads(1)
    case = split(_source(plan.folder, plan.name), seed, overlap, plan.most_rows, plan.fields)
    taught, leak = _taught(case, plan, seed, guards or Guards())
    teacher = Teacher(case.shared, taught.representations[case.shared], taught.logits[case.shared])
    data = StudentRows(case.rows_b, case.layout_b, case.labels, case.training, case.validation, teacher)
    settings = NetSettings(plan.shape, plan.optimisation, seed)
    trial = Trial(seed, overlap, data, case.test, settings, plan.patience)
    tested = scores_of(case.labels[case.test], taught.logits[case.test])
    outcomes = [Outcome(SPLITNN, seed, overlap, tested)]
    with ThreadPoolExecutor(1) as executor:
        outcomes += run_trial(trial, recipes, executor)
    return Result(tuple(outcomes), leak)


def local_validation(plan: Plan, seed: int, optimisation: Optimisation) -> float:
    """Return the validation AUC of B alone: what settings are chosen by; no test row is looked at."""
    use_threads(1)
    case = split(_source(plan.folder, plan.name), seed, 0.8, plan.most_rows, plan.fields)
    data = StudentRows(case.rows_b, case.layout_b, case.labels, case.training, case.validation)
    settings = NetSettings(plan.shape, optimisation, seed)
    _, course = Student.train(data, settings, baselines.local(), plan.patience)
    return max(one.validation.auc for one in course)


def _taught(case: Case, plan: Plan, seed: int, guards: Guards) -> tuple[Taught, LabelLeak]:
    settings = NetSettings(plan.shape, plan.optimisation, 2 * seed)
    rows = SharedRows(
        Half(case.rows_b, case.layout_b, settings),
        {"a": Half(case.rows_a, case.layout_a, replace(settings, seed=2 * seed + 1))},
        case.labels,
        _common(case.training, case.shared),
        _common(case.validation, case.shared),
    )
    attacks = GradientAttacks(case.labels)
    guarding = Guarding(
        guards.protection, guards.release, lambda chosen, sent: attacks.watch(chosen, sent["a"])
    )
    return teach(rows, plan.patience, seed, guarding), attacks.result()


def _common(rows: Ints, shared: Ints) -> Ints:
    return rows[np.isin(rows, shared)]


@lru_cache(maxsize=2)
def _source(folder: Path, name: str) -> Source:
    return load(folder, name)
