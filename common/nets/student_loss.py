"""L_JPL = [L_a2b^o + L_prc^o + β·(L_a2b^n + L_prc^n)]/(1 + β) + λ‖embeddings touched‖²: a batch's terms,
weighted.

The paper does not divide by 1 + β. Undivided, the loss of the same rows would grow as the overlap shrinks,
and λ with it mean less and less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from common.nets import jpl
from common.nets.backend import torch
from common.nets.recipe import Recipe
from common.nets.student_modules import Views

Weighted: TypeAlias = tuple[float, Callable[[], torch.Tensor]]


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What a batch is trained towards: its overlapped rows stand first.

    Attributes:
        labels: (b,) of 0 and 1.
        shared: Number k of overlapped rows.
        representations: (k, w_A) h_A; None when the recipe needs none.
        logits: (k,) of the teacher; None when the recipe needs none.
    """

    labels: torch.Tensor
    shared: int
    representations: torch.Tensor | None
    logits: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Balance:
    """Weights of the two kinds of rows; together 1.

    Attributes:
        shared: 1/(1 + β).
        own: β/(1 + β).
    """

    shared: float
    own: float

    @classmethod
    def of(cls, shared: int, own: int, beta: float | None) -> Balance:
        """Return the weights for so many training rows of each kind; without a β, all rows weigh alike."""
        if not shared or not own:
            return cls(1.0, 1.0)
        ratio = own / shared if beta is None else beta
        return cls(1.0 / (1.0 + ratio), ratio / (1.0 + ratio))


def batch_loss(views: Views, targets: Targets, recipe: Recipe, balance: Balance) -> torch.Tensor:
    """Return the loss of a batch without the embeddings' penalty; a part without rows contributes nothing."""
    k = targets.shared
    first, rest = views.part(slice(0, k)), views.part(slice(k, None))
    loss = views.own.sum() * 0.0
    if k:
        loss = loss + balance.shared * _total(_on_shared(first, targets, recipe))
    if k < len(targets.labels):
        loss = loss + balance.own * _total(_on_own(first, rest, targets, recipe))
    return loss


def _on_shared(views: Views, targets: Targets, recipe: Recipe) -> list[Weighted]:
    terms, labels = recipe.terms, targets.labels[: targets.shared]
    teacher, known = targets.logits, targets.representations
    weighted: list[Weighted] = [(terms.labels_own_shared, lambda: jpl.label_loss(views.own, labels))]
    if teacher is not None:
        weighted.append((terms.teacher_own, lambda: jpl.teacher_loss(views.own, teacher)))
    if recipe.heads == "own":
        return weighted
    weighted += [
        (
            terms.labels_shared,
            lambda: jpl.label_loss(views.fed, labels) + jpl.label_loss(views.aside, labels),
        ),
        (terms.ranking_shared, lambda: jpl.ranking(views.own, views.fed, labels)),
    ]
    if teacher is not None:
        weighted.append(
            (
                terms.teacher,
                lambda: jpl.teacher_loss(views.fed, teacher) + jpl.teacher_loss(views.aside, teacher),
            )
        )
    if known is not None:
        weighted.append((terms.contrast, lambda: jpl.contrast(views.imitation, known, recipe.temperature)))
    return weighted


def _on_own(shared: Views, views: Views, targets: Targets, recipe: Recipe) -> list[Weighted]:
    terms, labels = recipe.terms, targets.labels[targets.shared :]
    known = targets.representations
    weighted: list[Weighted] = [(terms.labels_own, lambda: jpl.label_loss(views.own, labels))]
    if recipe.heads == "own":
        return weighted
    weighted += [
        (terms.labels, lambda: jpl.label_loss(views.fed, labels) + jpl.label_loss(views.aside, labels)),
        (terms.ranking, lambda: jpl.ranking(views.fed, views.own, labels)),
    ]
    if known is not None and targets.shared:
        weighted.append(
            (
                terms.similarity,
                lambda: jpl.similarity(views.imitation, views.own_encoded, known, shared.own_encoded),
            )
        )
    return weighted


def _total(weighted: list[Weighted]) -> torch.Tensor:
    return torch.stack([weight * term() for weight, term in weighted if weight] or [torch.zeros(())]).sum()
