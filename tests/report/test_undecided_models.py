"""A model that answers every row alike is called that."""

from __future__ import annotations

import numpy as np

from party_b.networks.findings import undecided


def test_a_model_that_tells_no_rows_apart_is_named() -> None:
    scores = {"jpl": np.full(30, -0.2), "local": np.linspace(0, 1, 30), "fpd": np.array([0.5])}
    (said,) = undecided(scores)
    assert said.startswith("jpl gives all 30 test rows the same score")
