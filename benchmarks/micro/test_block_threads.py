"""Updates of one block by several threads: without locks, and the same with a lock around each update.

The question is whether doing without costs anything; what it gains depends on how long numpy runs without
the interpreter's lock, that is on the columns. `extra_info.us_per_operation` is the time of one update.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from common.glm.block import Block
from common.glm.feature_rows import DenseRows
from common.glm.score_losses import Ridge
from common.glm.update_rules import RuleName, rule_named
from common.types import Floats, Ints

ROWS, UPDATES = 256, 256


class LockedBlock(Block):
    """What the product does not do: one update at a time."""

    lock = Lock()

    def apply(self, rows: Ints, thetas: Floats, step: float) -> None:
        with self.lock:
            super().apply(rows, thetas, step)


@pytest.mark.parametrize("columns", [10, 20_000])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("kind", [Block, LockedBlock], ids=["lock-free", "locked"])
@pytest.mark.parametrize("rule", ["sgd", "saga"])
def test_apply(
    benchmark: BenchmarkFixture, rule: RuleName, kind: type[Block], threads: int, columns: int
) -> None:
    benchmark.group = f"{rule}, {columns} columns, {threads} threads"
    rng = np.random.default_rng(0)
    features = DenseRows(rng.normal(size=(ROWS, columns)) / np.sqrt(columns))
    block = kind(features, ("x",) * columns, rule_named(rule, features), Ridge(np.full(columns, 1e-4)))
    batches = rng.permutation(ROWS)[:, None].astype(np.int64)
    thetas = rng.normal(size=(ROWS, 1))

    def work(begin: int) -> None:
        for at in range(begin, UPDATES, threads):
            block.apply(batches[at % ROWS], thetas[at % ROWS], 1e-3)

    with ThreadPoolExecutor(threads) as executor:

        def everything() -> None:
            list(executor.map(work, range(threads)))

        everything()
        assert np.isfinite(block.weights).all()
        assert block.weights.any()
        benchmark.pedantic(everything, rounds=9)
    if benchmark.stats is not None:
        benchmark.extra_info["us_per_operation"] = round(benchmark.stats.stats.median / UPDATES * 1e6, 2)
