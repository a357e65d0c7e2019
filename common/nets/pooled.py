"""The same SplitNN in one process, with one backward pass through all of it: what a federation must equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from common.nets.backend import functional, torch
from common.nets.encoded import EncodedRows
from common.nets.learning import Learner
from common.nets.modules import Draws, Encoder, Layers, device, generator, inputs_of
from common.nets.shape import FieldLayout, NetSettings
from common.types import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Half:
    """One party's rows and settings.

    Attributes:
        rows: n encoded rows, the same entities at all parties.
        layout: Of this party's fields.
        settings: With this party's seed.
    """

    rows: EncodedRows
    layout: FieldLayout
    settings: NetSettings


class PooledNetwork:
    """All parties' modules in one graph."""

    def __init__(self, active: Half, passive: Mapping[str, Half], labels: Floats) -> None:
        """Make the modules with the weights that the parties' seeds give; `labels` (n,) of 0 and 1."""
        self._labels = labels
        self._halves = [active, *(passive[name] for name in sorted(passive))]
        settings, shape = active.settings, active.settings.shape
        self._encoders = [
            Encoder(half.layout, shape, generator(half.settings.seed, f"weights {role}")).to(device())
            for half, role in zip(self._halves, self._roles(), strict=True)
        ]
        self._draws = [
            Draws(half.settings.seed, role, shape.dropout)
            for half, role in zip(self._halves, self._roles(), strict=True)
        ]
        sizes = (shape.width * len(self._halves), *shape.top, 1)
        self._top = Layers(sizes, generator(settings.seed, "weights top")).to(device())
        self._top_draws = Draws(settings.seed, "top", shape.dropout)
        self._l2 = settings.optimisation.embedding_l2
        self._learners = [Learner(one, settings.optimisation) for one in (*self._encoders, self._top)]

    def step(self, rows: Ints) -> float:
        """Train on a batch; return its mean cross-entropy before the step."""
        outputs, squares = zip(
            *(
                encoder(inputs_of(half.rows, rows), draws)
                for encoder, half, draws in zip(self._encoders, self._halves, self._draws, strict=True)
            ),
            strict=True,
        )
        logits = self._top(torch.cat(outputs, dim=1), self._top_draws)[:, 0]
        targets = torch.from_numpy(self._labels[rows].astype(np.float32)).to(logits.device)
        loss = functional.binary_cross_entropy_with_logits(logits, targets)
        for learner in self._learners:
            learner.clear()
        torch.autograd.backward(loss + self._l2 * torch.stack(squares).sum())
        for learner in self._learners:
            learner.apply()
        return float(loss.detach())

    def logits(self, rows: Ints) -> Floats:
        """Return scores without dropout, (r,)."""
        with torch.no_grad():
            outputs = [
                encoder(inputs_of(half.rows, rows), None)[0]
                for encoder, half in zip(self._encoders, self._halves, strict=True)
            ]
            scores = self._top(torch.cat(outputs, dim=1), None)[:, 0]
        return np.asarray(scores.cpu().numpy(), dtype=np.float64)

    def _roles(self) -> list[str]:
        return ["active", *["passive"] * (len(self._halves) - 1)]


def train_pooled(network: PooledNetwork, batches: Iterable[Ints]) -> list[float]:
    """Train on the batches in their order; return each one's loss."""
    return [network.step(rows) for rows in batches]
