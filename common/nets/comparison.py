"""Methods × seeds × overlaps: every student of one trial, and the ablation of each term."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace

from common.nets import baselines
from common.nets.lift import Outcome
from common.nets.recipe import Patience, Recipe, Terms
from common.nets.scores import scores_of
from common.nets.shape import NetSettings
from common.nets.student import Student, StudentRows
from common.nets.threads import use_threads
from common.types import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One seed at one overlap: B's rows with a teacher, and rows that nobody trained on.

    Attributes:
        seed: Names the trial; the split, the teacher and the students' weights should all follow from it.
        overlap: Share of B's training rows that A has too.
        data: To train on.
        test: Positions that decide nothing.
        settings: Of all students.
        patience: Of all students.
    """

    seed: int
    overlap: float
    data: StudentRows
    test: Ints
    settings: NetSettings
    patience: Patience


def methods(jpl: Recipe | None = None, fpd: Recipe | None = None) -> dict[str, Recipe]:
    """Return the students to compare, by name: baselines, controls and JPL."""
    student, distilled = jpl or baselines.jpl(), fpd or baselines.fpd()
    return {
        "local": baselines.local(),
        "local_twice": baselines.twice(baselines.local()),
        "fpd": distilled,
        "fpd_twice": baselines.twice(distilled),
        "jpl_without_a": baselines.jpl_without_a(student),
        "jpl": student,
    }


def ablations(recipe: Recipe) -> dict[str, Recipe]:
    """Return the recipe without each term that it has, by name: `jpl − contrast` and so on."""
    used = [one.name for one in fields(Terms) if getattr(recipe.terms, one.name) > 0]
    return {f"jpl − {name}": replace(recipe, terms=replace(recipe.terms, **{name: 0.0})) for name in used}


def run_trial(trial: Trial, recipes: Mapping[str, Recipe], executor: Executor) -> list[Outcome]:
    """Train every student of a trial in the executor's processes; return their test scores.

    Raises:
        ConfigError, DataError, NumericError: As `Student.train` does.
    """
    pending = {name: executor.submit(evaluate, trial, name, recipe) for name, recipe in recipes.items()}
    return [pending[name].result() for name in recipes]


def evaluate(trial: Trial, method: str, recipe: Recipe) -> Outcome:
    """Train one student and score it on the test rows; in a worker, with one thread."""
    use_threads(1)
    student, _ = Student.train(trial.data, trial.settings, recipe, trial.patience)
    logits = student.logits(trial.data.rows.take(trial.test))
    return Outcome(method, trial.seed, trial.overlap, scores_of(trial.data.labels[trial.test], logits))
