"""New networks can learn, whatever their seed."""

from __future__ import annotations

import numpy as np
import pytest

from common.nets.backend import torch
from common.nets.modules import Encoder, Inputs, Layers, generator
from common.nets.shape import FieldLayout, NetShape

SEEDS = 300
LAYOUT = FieldLayout((2, 3), (1, 1), 0)
EVERY_ROW = Inputs(
    torch.tensor([[one, 2 + other] for one in range(2) for other in range(3)]), torch.zeros(6, 0)
)


@pytest.mark.parametrize("units", [1, 2, 4])
def test_no_seed_starts_a_network_that_answers_all_rows_alike(units: int) -> None:
    """With ReLU and drawn biases every third of these did, and no gradient could change that."""
    shape = NetShape(4, (units, units), (units,), 0.0)
    for seed in range(SEEDS):
        encoder = Encoder(LAYOUT, shape, generator(seed, "weights passive"))
        top = Layers((units, *shape.top, 1), generator(seed, "weights top"))
        scores = top(encoder(EVERY_ROW, None)[0], None)[:, 0]
        assert len(np.unique(scores.detach().numpy())) > 1, seed
        torch.autograd.backward((scores * torch.arange(6.0)).sum())
        for weight in (*encoder.layers.weights, *top.weights):
            assert weight.grad is not None
            assert weight.grad.abs().max() > 0, seed
