"""The layers of every network here: embeddings of hashed fields, and small MLPs.

Nothing draws from torch's global generator. Each module has a generator of its own for new weights and for
dropout, so that a network in one process and the same network over several draw the same numbers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from common.nets.backend import functional, nn, torch
from common.nets.encoded import EncodedRows
from common.nets.shape import FieldLayout, NetShape
from common.types import Ints

# Slope below 0. With 0, all units of a narrow layer can be off for every row at once; no gradient passes
# then, and the network answers all rows alike for ever. Adam divides by a gradient's size: little suffices.
_LEAK = 0.01


def device() -> torch.device:
    """Return the GPU when there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def generator(seed: int, purpose: str) -> torch.Generator:
    """Return a generator for one purpose of a seed; on the CPU, so that a GPU draws the same numbers."""
    word = hashlib.sha256(f"colonnade nets v1|{seed}|{purpose}".encode()).digest()[:8]
    return torch.Generator().manual_seed(int.from_bytes(word, "big") >> 1)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """A batch on the device.

    Attributes:
        indices: (b, c) int64.
        numbers: (b, k) float32.
    """

    indices: torch.Tensor
    numbers: torch.Tensor


class Draws:
    """Dropout with numbers of its own."""

    def __init__(self, seed: int, purpose: str, share: float) -> None:
        """Start the numbers for one module; `share` of the units is left out."""
        self.generator = generator(seed, f"dropout {purpose}")
        self._share = share

    def thin(self, units: torch.Tensor) -> torch.Tensor:
        """Return the units with some left out, and the others scaled up to make good for it."""
        if self._share == 0.0:
            return units
        keep = 1.0 - self._share
        mask = torch.rand(units.shape, generator=self.generator).lt_(keep).div_(keep)
        return units * mask.to(units.device)


def rectified(units: torch.Tensor) -> torch.Tensor:
    """Return max(x, x/100): what follows a hidden layer (leaky ReLU, Maas, Hannun and Ng 2013)."""
    return functional.leaky_relu(units, _LEAK)


class Layers(nn.Module):
    """Linear layers with a leaky ReLU and dropout between them; none after the last."""

    def __init__(self, sizes: Sequence[int], draws: torch.Generator) -> None:
        """Make layers from `sizes[0]` inputs to `sizes[-1]` outputs: weights as torch draws them, biases 0.

        New embeddings are small, so that a drawn bias would decide alone whether a unit is on for all rows.
        """
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for inputs, outputs in pairwise(sizes):
            bound = 1.0 / math.sqrt(max(1, inputs))
            weight = torch.empty(outputs, inputs)
            self.weights.append(nn.Parameter(weight.uniform_(-bound, bound, generator=draws)))
            self.biases.append(nn.Parameter(torch.zeros(outputs)))

    def forward(self, units: torch.Tensor, draws: Draws | None) -> torch.Tensor:
        """Return the last layer's outputs; `draws` only while training."""
        for at, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if at:
                units = rectified(units)
                units = units if draws is None else draws.thin(units)
            # A pipelined batch runs backward after the weights have moved; it needs those of its forward.
            units = functional.linear(units, weight if draws is None else weight.clone(), bias)
        return units


class Encoder(nn.Module):
    """A party's own half: embeddings and numbers of its fields, then its layers up to the cut layer."""

    def __init__(self, layout: FieldLayout, shape: NetShape, weights: torch.Generator) -> None:
        """Make an encoder with new weights."""
        super().__init__()
        self.layout = layout
        table = torch.empty(layout.table_rows, shape.embedding_dim)
        table.normal_(0.0, shape.embedding_scale, generator=weights)
        table[layout.padding] = 0.0
        self.table = nn.Parameter(table)
        self.layers = Layers((layout.inputs(shape.embedding_dim), *shape.bottom), weights)
        self.sparse = False

    def forward(self, inputs: Inputs, draws: Draws | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (b, width) outputs and (1/b)·Σ‖e‖² over the embeddings that were looked up."""
        looked_up = functional.embedding(
            inputs.indices, self.table, padding_idx=self.layout.padding, sparse=self.sparse
        )
        squares = looked_up.square().sum() / max(1, len(looked_up))
        units = torch.cat([self._fields(looked_up, inputs.indices), inputs.numbers], dim=1)
        return self.layers(units, draws), squares

    def _fields(self, looked_up: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        """Return one embedding a field side by side: of a field with several values, their mean."""
        widths = self.layout.widths
        if all(width == 1 for width in widths):
            return looked_up.flatten(1)
        there = (indices != self.layout.padding).to(looked_up.dtype)
        means = []
        begin = 0
        for width in widths:
            end = begin + width
            counts = there[:, begin:end].sum(dim=1, keepdim=True).clamp(min=1.0)
            means.append(looked_up[:, begin:end].sum(dim=1) / counts)
            begin = end
        return torch.cat(means, dim=1)


def inputs_of(rows: EncodedRows, chosen: Ints) -> Inputs:
    """Return the chosen rows on the device."""
    where = device()
    indices = torch.from_numpy(np.asarray(rows.indices[chosen], dtype=np.int64))
    numbers = torch.from_numpy(np.array(rows.numbers[chosen], dtype=np.float32))
    return Inputs(indices.to(where), numbers.to(where))
