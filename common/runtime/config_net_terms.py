"""The terms of semi-federated learning in the job file: each has a weight, and 0 switches it off."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from common.runtime.config_errors import Section

Weight = Annotated[float, Field(ge=0)]


class JplTerms(Section):
    """Weights of the terms of L_JPL (PROTOCOLS 3).

    `beta: auto` weighs B's own rows by how many there are for each common one.
    """

    cross_entropy: Weight = 1.0
    teacher: Weight = 1.0
    representation: Weight = 0.1
    similarity: Weight = 0.1
    ranking: Weight = 0.1
    own_head: Weight = 1.0
    own_rows: Weight = 1.0
    temperature: float = Field(default=0.1, gt=0)
    beta: Literal["auto"] | Weight = "auto"
