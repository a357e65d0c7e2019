"""The terms of semi-federated learning in the job file: each has a weight, and 0 switches it off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, Strict, model_validator

from common.nets.baselines import LABEL_FACTORS
from common.nets.recipe import MOST_FACTORS, Recipe, Terms, Trust
from common.runtime.config.errors import Section, require
from common.runtime.config.yaml_source import Problem

Weight = Annotated[float, Field(ge=0, le=1e6)]
Factors = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1e6)], ...],
    Field(min_length=1, max_length=MOST_FACTORS),
    Strict(False),
]

_USUAL = Terms()
_WEIGHTS = (
    "labels_own",
    "labels_own_shared",
    "teacher_own",
    "labels",
    "labels_shared",
    "teacher",
    "contrast",
    "similarity",
    "ranking_shared",
    "ranking",
)


class JplTerms(Section):
    """Weights of the terms of L_JPL (PROTOCOLS 3; common/nets/jpl.py has the formulas).

    `beta: auto` weighs all rows alike, whether A has them too or not. A student is trained for each of
    `label_factors`, which multiply the weights of all 0/1 labels; validation rows choose one. With
    `trust: checked`, a split network that does not rank them clearly better than B's columns do alone is not
    followed.
    """

    labels_own: Weight = _USUAL.labels_own
    labels_own_shared: Weight = _USUAL.labels_own_shared
    teacher_own: Weight = _USUAL.teacher_own
    labels: Weight = _USUAL.labels
    labels_shared: Weight = _USUAL.labels_shared
    teacher: Weight = _USUAL.teacher
    contrast: Weight = _USUAL.contrast
    similarity: Weight = _USUAL.similarity
    ranking_shared: Weight = _USUAL.ranking_shared
    ranking: Weight = _USUAL.ranking
    temperature: float = Field(default=0.1, gt=0)
    beta: Literal["auto"] | Weight = "auto"
    label_factors: Factors = LABEL_FACTORS
    trust: Trust = "checked"

    @model_validator(mode="after")
    def _some_term(self) -> Self:
        require(self._broken())
        return self

    def _broken(self) -> Iterator[Problem]:
        if not any(getattr(self, name) for name in _WEIGHTS):
            yield Problem((), "needs a term: all weights are 0")

    def recipe(self) -> Recipe:
        """Return the student that the terms describe."""
        terms = Terms(**{name: getattr(self, name) for name in _WEIGHTS})
        beta = None if self.beta == "auto" else self.beta
        return Recipe(
            "joint", terms, self.temperature, beta, label_factors=self.label_factors, trust=self.trust
        )
