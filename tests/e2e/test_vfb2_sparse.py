"""VFB² on LIBSVM rows between processes: 120,000 columns, and memory for what is not zero alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, hstack

from common.glm.feature_rows import SparseRows
from common.glm.score_fit import fit_scores, score_objective
from common.runtime.config.vfb2 import Vfb2Job
from tests.e2e.parties import Federation, party

pytestmark = pytest.mark.e2e

ROWS, COLUMNS, IN_A_ROW = 2_000, 120_000, 12
DENSE_BYTES = 8 * ROWS * COLUMNS
"""What one party's columns would take written out: 1.9 GB."""
PARTIES = {"party_b": "active", "party_a": "passive", "party_a2": "passive"}
JOB = {
    "job": "sparse",
    "algorithm": "vfb2",
    "active": "party_b",
    "passive": ["party_a", "party_a2"],
    "data": {"dataset": "clicks", "label": "clicked", "test_fraction": 0.0},
    "model": {"l2": 0.02},
    "train": {"update": "saga", "batch_size": 20, "epochs": 20, "learning_rate": 0.02, "max_staleness": 4},
}


def write_rows(folder: Path) -> tuple[dict[str, Path], dict[str, csr_array], np.ndarray]:
    """Write one LIBSVM file a party; every row has popular columns and rare ones, up to the last number."""
    rng = np.random.default_rng(8)
    blocks = {}
    for name in PARTIES:
        popular = np.argsort(rng.random((ROWS, 40)), axis=1)[:, : IN_A_ROW - 2]
        rare = rng.integers(40, COLUMNS - 1, size=(ROWS, 1))
        numbers = np.sort(np.hstack([popular, rare, np.full((ROWS, 1), COLUMNS - 1)]), axis=1)
        values = rng.integers(1, 4, size=numbers.shape).astype(float)
        pointers = np.arange(0, ROWS * IN_A_ROW + 1, IN_A_ROW)
        blocks[name] = csr_array((values.ravel(), numbers.ravel(), pointers), shape=(ROWS, COLUMNS))
    margin = sum(block[:, :40] @ rng.normal(size=40) for block in blocks.values())
    labels = np.where(margin + rng.logistic(size=ROWS) > np.median(margin), 1, -1)
    paths = {}
    for name, block in blocks.items():
        paths[name] = folder / f"{name}.libsvm"
        with paths[name].open("w") as stream:
            for row, label in enumerate(labels):
                begin, end = block.indptr[row], block.indptr[row + 1]
                cells = zip(block.indices[begin:end] + 1, block.data[begin:end], strict=True)
                told = label if PARTIES[name] == "active" else 0
                stream.write(f"{told} " + " ".join(f"{at}:{value:g}" for at, value in cells) + "\n")
    return paths, blocks, labels.astype(float)


def peak_bytes(federation: Federation, name: str) -> int:
    """Return the most memory that a service has had (Linux)."""
    status = Path(f"/proc/{federation[name].process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


async def test_wide_rows_reach_the_pooled_optimum_in_memory_for_what_is_there(start, tmp_path_factory):
    paths, blocks, labels = write_rows(tmp_path_factory.mktemp("sparse"))
    federation = start(
        *(
            party(
                name,
                role,
                policy={"algorithms": ["vfb2"]},
                datasets={
                    "clicks": {
                        "source": {"libsvm": str(paths[name]), "ids": "row_numbers", "label": "clicked"}
                    }
                },
            )
            for name, role in PARTIES.items()
        ),
        circle=True,
    )
    before = {name: peak_bytes(federation, name) for name in PARTIES}
    config = Vfb2Job.model_validate_json(json.dumps(JOB))
    _, report = await federation.run(config)
    grown = {name: peak_bytes(federation, name) - before[name] for name in PARTIES}
    assert max(grown.values()) < DENSE_BYTES / 16, grown
    best = pooled_objective([scaled(block) for block in blocks.values()], labels, config.model.l2)
    assert abs(report["loss_history"][-1] / best - 1) < 2e-2
    assert report["loss_history"][-1] < 0.9 * report["vfb2"]["objective_at_start"]


def scaled(block: csr_array) -> csr_array:
    """Divide by standard deviations, as sparse columns are scaled, and leave out those that do not vary."""
    mean = np.asarray(block.mean(axis=0)).ravel()
    square = np.asarray((block.multiply(block)).mean(axis=0)).ravel()
    deviation = np.sqrt(np.maximum(square - mean**2, 0))
    varying = np.flatnonzero(deviation > 0)
    return csr_array(block[:, varying] / deviation[varying])


def pooled_objective(blocks: list[csr_array], labels: np.ndarray, l2: float) -> float:
    """Return the optimum of all columns and an intercept."""
    matrix = csr_array(hstack([*blocks, csr_array(np.ones((ROWS, 1)))], format="csr"))
    penalties = np.full(matrix.shape[1], l2)
    penalties[-1] = 0.0
    rows = SparseRows(matrix)
    weights = fit_scores(rows, labels, penalties, "logistic")
    return score_objective(rows, labels, weights, penalties, "logistic")
