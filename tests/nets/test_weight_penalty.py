"""`model.l2` means for networks what it means everywhere: (l2/2)·‖w‖² beside the mean loss."""

from __future__ import annotations

import numpy as np

from common.nets.backend import torch
from common.nets.learning import Learner
from common.nets.modules import Layers, generator
from common.nets.shape import Optimisation

L2 = 0.3
INPUTS = torch.tensor(np.random.default_rng(1).normal(size=(20, 4)), dtype=torch.float32)


def trained(l2: float, penalty: float) -> Layers:
    """Take five steps, with the penalty in the optimiser or in the loss."""
    layers = Layers((4, 3, 1), generator(5, "weights"))
    learner = Learner(layers, Optimisation(learning_rate=0.05, l2=l2))
    for _ in range(5):
        learner.clear()
        squares = torch.stack([one.square().sum() for one in layers.weights]).sum()
        torch.autograd.backward(layers(INPUTS, None).square().mean() + penalty / 2 * squares)
        learner.apply()
    return layers


def test_l2_is_half_the_squared_weights_beside_the_mean_loss_and_spares_biases() -> None:
    ours, written_out, without = trained(L2, 0.0), trained(0.0, L2), trained(0.0, 0.0)
    for one, other in zip(ours.parameters(), written_out.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(ours.weights[0], without.weights[0])
