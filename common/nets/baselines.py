"""The students by name: what JPL is compared with. Plain values, no torch."""

from __future__ import annotations

from dataclasses import fields, replace

from common.nets.recipe import PAPER, Recipe, Terms

LABEL_FACTORS = (1.0, 0.1)
"""Of students with a teacher; docs/semi-federated.md has what each was worth."""

_NOTHING = {
    "labels": 0.0,
    "labels_shared": 0.0,
    "teacher": 0.0,
    "contrast": 0.0,
    "similarity": 0.0,
    "ranking_shared": 0.0,
    "ranking": 0.0,
}


def local() -> Recipe:
    """Return B by itself: its features, all its labelled rows, one network."""
    return Recipe("own", Terms(**_NOTHING, labels_own_shared=1.0, teacher_own=0.0))


def fpd(teacher: float = 1.0, labels_shared: float = 0.25) -> Recipe:
    """Return plain distillation: B's network also follows the teacher's soft labels on overlapped rows.

    Its labels have the weight that JPL gives them, so that the two differ by what JPL adds.
    """
    terms = Terms(**_NOTHING, labels_own_shared=labels_shared, teacher_own=teacher)
    return Recipe("own", terms, label_factors=LABEL_FACTORS, trust="checked")


def fpd_usual() -> Recipe:
    """Return plain distillation as it is usually done: soft labels beside all 0/1 labels, at one weight."""
    return Recipe("own", Terms(**_NOTHING, labels_own_shared=1.0))


def jpl() -> Recipe:
    """Return joint privileged learning, with the weights of labels chosen and the teacher checked."""
    return Recipe("joint", label_factors=LABEL_FACTORS, trust="checked")


def jpl_paper() -> Recipe:
    """Return joint privileged learning with the paper's weights."""
    return Recipe("joint", PAPER)


def twice(recipe: Recipe) -> Recipe:
    """Return the mean of two such students with seeds of their own: what averaging is worth by itself."""
    return replace(recipe, members=2 * recipe.members)


def methods(own_jpl: Recipe | None = None, members: int = 1) -> dict[str, Recipe]:
    """Return the students to compare, by name: baselines, controls and JPL.

    Args:
        own_jpl: What to call `jpl`, None for the defaults; `fpd` weighs labels and checks its teacher alike.
        members: Networks that each of them averages; those called twice average two times as many.
    """
    student = own_jpl or jpl()
    distilled = replace(fpd(), label_factors=student.label_factors, trust=student.trust)
    single = {
        "local": local(),
        "local_twice": twice(local()),
        "fpd": distilled,
        "fpd_twice": twice(distilled),
        "jpl_without_a": student.untaught,
        "jpl": student,
        "jpl_twice": twice(student),
        "jpl_paper": jpl_paper(),
    }
    return {name: replace(one, members=members * one.members) for name, one in single.items()}


def ablations(recipe: Recipe) -> dict[str, Recipe]:
    """Return the recipe without each term that it has, by the term's name; none if it has but one."""
    used = [one.name for one in fields(Terms) if getattr(recipe.terms, one.name) > 0]
    if len(used) == 1:
        return {}
    return {name: replace(recipe, terms=replace(recipe.terms, **{name: 0.0})) for name in used}
