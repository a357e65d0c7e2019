"""Every loss term equals its formula written out in numpy, and has a finite gradient where it is tempted not
to."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch

from common.nets import baselines, jpl
from common.nets.student_loss import Balance, Targets, batch_loss
from common.nets.student_modules import Views

G = np.random.default_rng(4)
A, B = G.normal(size=(7, 5)), G.normal(size=(7, 5))
OWN, OWN_SHARED = G.normal(size=(4, 3)), G.normal(size=(7, 3))
Z, T = G.normal(size=9), G.normal(size=9)
Y = np.array([1, 0, 0, 1, 1, 0, 0, 0, 1], dtype=np.float64)

Array = npt.NDArray[np.float64]


def tensor(values: Array) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def value(loss: torch.Tensor) -> float:
    return float(loss.detach())


def sigma(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / np.sqrt(a @ a) / np.sqrt(b @ b))


def test_contrast_is_infonce_on_the_sphere() -> None:
    tau = 0.3
    expected = 0.0
    for i in range(7):
        scores = [math.exp(cosine(A[i], B[j]) / tau) for j in range(7)]
        expected -= math.log(scores[i] / sum(scores)) / 7
    assert value(jpl.contrast(tensor(A), tensor(B), tau)) == pytest.approx(expected, rel=1e-6)


def test_the_label_loss_is_mean_cross_entropy() -> None:
    expected = -np.mean(Y * np.log(sigma(Z)) + (1 - Y) * np.log(1 - sigma(Z)))
    assert value(jpl.label_loss(tensor(Z), tensor(Y))) == pytest.approx(expected, rel=1e-9)


def test_the_teacher_loss_is_the_divergence_from_its_prediction() -> None:
    p, q = sigma(T), sigma(Z)
    expected = np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
    assert value(jpl.teacher_loss(tensor(Z), tensor(T))) == pytest.approx(expected, rel=1e-6)
    assert value(jpl.teacher_loss(tensor(T), tensor(T))) == pytest.approx(0.0, abs=1e-12)


def test_similarity_is_the_distance_of_the_two_cosine_tables() -> None:
    expected = np.mean(
        [(cosine(A[i], B[j]) - cosine(OWN[i], OWN_SHARED[j])) ** 2 for i in range(4) for j in range(7)]
    )
    own = tensor(OWN)
    found = jpl.similarity(tensor(A[:4]), own, tensor(B), tensor(OWN_SHARED))
    assert value(found) == pytest.approx(expected, rel=1e-6)
    # B's own space is what is followed: it must not move to meet the imitation.
    found.backward()
    assert own.grad is None


def test_ranking_is_the_papers_three_norms_with_the_last_one_divided() -> None:
    def order(z: Array, rows: Array, columns: Array) -> Array:
        return sigma(z[rows > 0][:, None] - z[columns > 0][None, :])

    expected = 0.0
    for chosen in (Y, 1 - Y):
        wanted = order(T, chosen, chosen)
        expected += np.linalg.norm(order(Z, chosen, chosen) - wanted) / np.linalg.norm(wanted)
    expected -= np.linalg.norm(order(Z, Y, 1 - Y)) / math.sqrt(Y.sum() * (1 - Y).sum())
    leader = tensor(T)
    found = jpl.ranking(tensor(Z), leader, tensor(Y))
    assert value(found) == pytest.approx(expected, rel=1e-6)
    found.backward()
    assert leader.grad is None


def test_ranking_does_not_grow_with_the_batch() -> None:
    small = value(jpl.ranking(tensor(Z), tensor(T), tensor(Y)))
    large = value(jpl.ranking(tensor(np.tile(Z, 9)), tensor(np.tile(T, 9)), tensor(np.tile(Y, 9))))
    assert large == pytest.approx(small, rel=0.1)


@pytest.mark.parametrize("labels", [np.zeros(9), np.ones(9), np.eye(9)[0], 1 - np.eye(9)[0], Y])
def test_ranking_has_a_finite_gradient_without_a_class_and_where_both_heads_agree(labels: Array) -> None:
    follower = tensor(Z)
    jpl.ranking(follower, tensor(Z), tensor(labels)).backward()
    assert follower.grad is not None
    assert torch.isfinite(follower.grad).all()


def test_a_norm_has_the_gradient_zero_at_zero() -> None:
    x = tensor(np.zeros((3, 3)))
    jpl.norm(x).backward()
    assert x.grad is not None
    assert float(x.grad.abs().max()) == 0.0


@pytest.mark.parametrize(
    "term",
    [
        lambda x: jpl.contrast(x, tensor(B), 0.1),
        lambda x: jpl.similarity(x, tensor(np.zeros((7, 3))), tensor(B), tensor(OWN_SHARED)),
    ],
)
def test_terms_on_the_sphere_have_a_finite_gradient_at_its_centre(
    term: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    x = tensor(np.zeros((7, 5)))
    term(x).backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("shared", [0, 2, 6, 9])
def test_by_default_every_row_weighs_alike_whatever_the_overlap(shared: int) -> None:
    z, y = tensor(Z), tensor(Y)
    views = Views(z, z, z, z[:, None], z[:, None], z.sum())
    balance = Balance.of(100 * shared, 100 * (9 - shared), None)
    found = batch_loss(views, Targets(y, shared, None, None), baselines.local(), balance)
    assert value(found) == pytest.approx(value(jpl.label_loss(z, y)))
    assert Balance.of(5, 5, 3.0) == Balance(0.25, 0.75)
