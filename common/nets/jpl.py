"""The loss terms of joint privileged learning (Li et al. 2022, arXiv 2209.15635; PROTOCOLS §3, stage 2).

The letters: h̃_A is the imitation (what B's partial encoder makes of x_B), h_A the teacher's representation
that A handed over, ŷ_B, ŷ_A, ŷ_Fed the logits of the heads, sg stops the gradient. The ranking terms are the
paper's; the imitation terms are a reconstruction (docs/decisions/0017-jpl.md).
"""

from __future__ import annotations

import math

from common.nets.backend import functional, torch

# Added under roots, so that a norm of 0 has the gradient 0 and not NaN. Its root is far below any distance in
# use.
_TINY = 1e-12


def norm(values: torch.Tensor) -> torch.Tensor:
    """Return ‖·‖_F as √(Σx² + ε), which has a gradient at 0 too."""
    return values.square().sum().add(_TINY).sqrt()


def contrast(imitation: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return InfoNCE of the imitations among the teacher's representations of the batch.

    s_ij = cos(h̃_A,i , h_A,j);  −(1/b)·Σ_i ln( e^{s_ii/τ} / Σ_j e^{s_ij/τ} )

    Args:
        imitation: (b, w).
        teacher: (b, w), the same rows.
        temperature: τ, above 0.
    """
    similarities = _directions(imitation) @ _directions(teacher).T / temperature
    return functional.cross_entropy(similarities, torch.arange(len(imitation), device=imitation.device))


def label_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy −(1/b)·Σ y·ln σ(z) + (1 − y)·ln(1 − σ(z))."""
    return functional.binary_cross_entropy_with_logits(logits, labels)


def teacher_loss(logits: torch.Tensor, teacher_logits: torch.Tensor) -> torch.Tensor:
    """Return the mean Kullback-Leibler divergence KL(σ(t) ‖ σ(z)) from the teacher's prediction.

    (1/b)·Σ p·(ln p − ln q) + (1 − p)·(ln(1 − p) − ln(1 − q)),  p = σ(t), q = σ(z)
    """
    p = torch.sigmoid(teacher_logits)
    entropy = functional.binary_cross_entropy_with_logits(teacher_logits, p)
    return functional.binary_cross_entropy_with_logits(logits, p) - entropy


def similarity(
    imitation: torch.Tensor, own: torch.Tensor, teacher: torch.Tensor, own_shared: torch.Tensor
) -> torch.Tensor:
    """Return how far the imitations' similarity structure is from the one in B's own space.

    (1/(m·b))·Σ_ij ( cos(h̃_A,i , h_A,j) − sg cos(h_B,i , h_B,j) )²,  i not overlapped, j overlapped

    Args:
        imitation: (m, w_A) h̃_A of rows that only B has.
        own: (m, w_B) h_B of the same rows.
        teacher: (b, w_A) h_A of overlapped rows.
        own_shared: (b, w_B) h_B of the same overlapped rows.
    """
    wanted = (_directions(own) @ _directions(own_shared).T).detach()
    return (_directions(imitation) @ _directions(teacher).T - wanted).square().mean()


def ranking(follower: torch.Tensor, leader: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the ranking consistency of one head with another, on one batch.

    R_ij = σ(ŷ_i − ŷ_j);
    ‖R_f⁺⁺ − sg R_l⁺⁺‖_F/‖sg R_l⁺⁺‖_F + ‖R_f⁻⁻ − sg R_l⁻⁻‖_F/‖sg R_l⁻⁻‖_F − ‖R_f⁺⁻‖_F/√(n⁺n⁻)

    The paper's last term has no denominator, and so grows with the batch; divided by √(n⁺n⁻) it lies in [0,
    1]. A class that the batch lacks contributes nothing.

    Args:
        follower: (b,) logits of the head that learns.
        leader: (b,) logits of the head that it follows.
        labels: (b,) of 0 and 1.
    """
    positive = labels > 0.5
    loss = follower.sum() * 0.0
    for chosen in (positive, ~positive):
        if int(chosen.sum()) > 1:
            wanted = _order(leader[chosen], leader[chosen]).detach()
            loss = loss + norm(_order(follower[chosen], follower[chosen]) - wanted) / norm(wanted)
    pairs = int(positive.sum()) * int((~positive).sum())
    if pairs:
        loss = loss - norm(_order(follower[positive], follower[~positive])) / math.sqrt(pairs)
    return loss


def _order(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(first[:, None] - second[None, :])


def _directions(rows: torch.Tensor) -> torch.Tensor:
    """Put rows on the sphere; a row of zeros stays at the centre and has a finite gradient."""
    return rows / rows.square().sum(dim=1, keepdim=True).add(_TINY).sqrt()
