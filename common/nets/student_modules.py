"""The modules of a student (Li et al. 2022): B's encoder, the partial encoder, and their heads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from common.nets.backend import nn, torch
from common.nets.modules import Draws, Encoder, Inputs, Layers, generator, rectified
from common.nets.recipe import Heads
from common.nets.shape import FieldLayout, NetShape


@dataclass(frozen=True, slots=True, eq=False)
class Views:
    """What the modules make of a batch of b rows; with heads `own`, all three logits are those of the B head.

    Attributes:
        own: (b,) ŷ_B, logits of the B head.
        fed: (b,) ŷ_Fed.
        aside: (b,) ŷ_A, the auxiliary head on the imitation.
        own_encoded: (b, w_B) h_B.
        imitation: (b, w_A) h̃_A.
        squares: (1/b)·Σ‖e‖² over the embeddings that were looked up.
    """

    own: torch.Tensor
    fed: torch.Tensor
    aside: torch.Tensor
    own_encoded: torch.Tensor
    imitation: torch.Tensor
    squares: torch.Tensor

    def part(self, rows: slice) -> Views:
        """Return the views of some of the rows; `squares` stay those of all."""
        return Views(
            self.own[rows],
            self.fed[rows],
            self.aside[rows],
            self.own_encoded[rows],
            self.imitation[rows],
            self.squares,
        )

    @property
    def prediction(self) -> torch.Tensor:
        """The logits of the student's prediction, (b,)."""
        return (self.own + self.fed) / 2


class StudentModules(nn.Module):
    """One member of a student."""

    def __init__(self, layout: FieldLayout, shape: NetShape, width: int, heads: Heads, seed: int) -> None:
        """Make modules with new weights.

        Args:
            layout: Of B's fields.
            shape: `bottom` of both encoders, `top` of all heads.
            width: w_A, of the representations that the imitation is to meet.
            heads: Which there are.
            seed: Of the weights.
        """
        super().__init__()
        self.joint, self.width = heads == "joint", width
        self.own = Encoder(layout, shape, generator(seed, "weights student own"))
        draws = generator(seed, "weights student heads")
        self.head_own = Layers((shape.width, *shape.top, 1), draws)
        if self.joint:
            imitating = replace(shape, bottom=(*shape.bottom[:-1], width))
            self.partial = Encoder(layout, imitating, generator(seed, "weights student partial"))
            self.head_aside = Layers((width, *shape.top, 1), draws)
            self.head_fed = Layers((shape.width + width, *shape.top, 1), draws)

    def forward(self, inputs: Inputs, draws: Draws | None) -> Views:
        """Return the views of a batch; `draws` only while training."""
        own, squares = self.own(inputs, draws)
        logits = self.head_own(rectified(own), draws)[:, 0]
        if not self.joint:
            return Views(logits, logits, logits, own, own, squares)
        imitation, more = self.partial(inputs, draws)
        both = rectified(torch.cat([own, imitation], dim=1))
        fed = self.head_fed(both, draws)[:, 0]
        aside = self.head_aside(both[:, own.shape[1] :], draws)[:, 0]
        return Views(logits, fed, aside, own, imitation, squares + more)
