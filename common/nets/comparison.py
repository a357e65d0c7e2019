"""Methods × seeds × overlaps: every student of one trial."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from common.nets.lift import Outcome
from common.nets.recipe import Patience, Recipe
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


def run_trial(trial: Trial, recipes: Mapping[str, Recipe], executor: Executor) -> list[Outcome]:
    """Train every student of a trial in the executor's processes; return their test scores.

    Raises:
        ConfigError, DataError, NumericError: As `Student.train` does.
    """
    alike: dict[Recipe, dict[str, Recipe]] = {}
    for name, recipe in recipes.items():
        alike.setdefault(replace(recipe, members=1), {})[name] = recipe
    pending = [executor.submit(evaluate, trial, group) for group in alike.values()]
    outcomes = {one.method: one for job in pending for one in job.result()}
    return [outcomes[name] for name in recipes]


def evaluate(trial: Trial, recipes: Mapping[str, Recipe]) -> list[Outcome]:
    """Train one student and score it on the test rows; in a worker, with one thread.

    Args:
        trial: The rows.
        recipes: By name; they differ in the number of members alone, so the first of the largest are the
            others.
    """
    use_threads(1)
    largest = max(recipes.values(), key=lambda recipe: recipe.members)
    student, _ = Student.train(trial.data, trial.settings, largest, trial.patience)
    rows, labels = trial.data.rows.take(trial.test), trial.data.labels[trial.test]
    return [
        Outcome(
            name, trial.seed, trial.overlap, scores_of(labels, student.first(recipe.members).logits(rows))
        )
        for name, recipe in recipes.items()
    ]
