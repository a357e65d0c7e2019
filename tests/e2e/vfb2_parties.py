"""Parties of VFB² as processes: four tables of one problem, and the pooled optimum as oracle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from common.data.split import split_rows
from common.glm.feature_rows import DenseRows
from common.glm.score_fit import fit_scores, score_objective
from common.runtime.config.vfb2 import Vfb2Job
from tests.e2e.parties import Federation, Settings, changed, party
from tests.e2e.tables import read_csv, write_csv

ROWS = 160
COLUMNS = {
    "party_b": ("income", "visits"),
    "party_b2": ("limit", "spent"),
    "party_a": ("age", "bmi", "bp"),
    "party_a2": ("sugar", "pulse"),
}
ROLES = {name: "active" if name.startswith("party_b") else "passive" for name in COLUMNS}
JOB: Settings = {
    "job": "async",
    "algorithm": "vfb2",
    "active": ["party_b", "party_b2"],
    "passive": ["party_a", "party_a2"],
    "data": {"dataset": "patients", "label": "y", "test_fraction": 0.25, "split_seed": 3},
    "model": {"l2": 0.05},
    "train": {"update": "svrg", "batch_size": 4, "epochs": 12, "learning_rate": 0.15, "max_staleness": 4},
}


def job(**changes: Any) -> Vfb2Job:
    """Return the job of four parties with some changes."""
    return Vfb2Job.model_validate_json(json.dumps(changed(JOB, **changes)))


def write_tables(folder: Path) -> dict[str, Path]:
    """Write one CSV file a party; both active ones have the label. Rows are in the aligned order."""
    rng = np.random.default_rng(31)
    ids = sorted(f"{number:04d}" for number in rng.permutation(9000)[:ROWS])
    columns = {name: rng.normal(size=(ROWS, len(names))) for name, names in COLUMNS.items()}
    margin = sum(block @ rng.normal(size=block.shape[1]) for block in columns.values())
    label = (margin + rng.logistic(size=ROWS) > 0).astype(float)[:, np.newaxis]
    paths = {name: folder / f"{name}.csv" for name in COLUMNS}
    for name, names in COLUMNS.items():
        active = ROLES[name] == "active"
        values = np.column_stack([columns[name], label]) if active else columns[name]
        write_csv(paths[name], (*names, "y") if active else names, ids, values)
    return paths


def four(tables: Mapping[str, Path], *names: str, **changes: Any) -> tuple[Settings, ...]:
    """Return the settings of the named parties, of all four without a name."""
    chosen = names or tuple(COLUMNS)
    return tuple(
        party(name, ROLES[name], {"patients": tables[name]}, policy={"algorithms": ["vfb2"]}, **changes)
        for name in chosen
    )


def pooled(config: Vfb2Job, tables: Mapping[str, Path]) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the pooled optimum's objective, its weights, and the training matrix."""
    blocks, y, train = [], np.zeros(0), split_rows(ROWS, config.data.test_fraction, config.data.split_seed)[0]
    for name in config.members:
        values = read_csv(tables[name])[1]
        if ROLES[name] == "active":
            values, y = values[:, :-1], values[:, -1]
        block = (values - values[train].mean(axis=0)) / values[train].std(axis=0)
        blocks.append(np.column_stack([block, np.ones(ROWS)]) if name == config.active else block)
    matrix = np.column_stack(blocks)[train]
    penalties = np.full(matrix.shape[1], config.model.l2)
    penalties[blocks[0].shape[1] - 1] = 0.0  # the intercept
    labels = 2 * y[train] - 1 if config.is_classifier else y[train]
    rows = DenseRows(matrix)
    weights = fit_scores(rows, labels, penalties, config.train.loss)
    return score_objective(rows, labels, weights, penalties, config.train.loss), weights, matrix


def parts(federation: Federation, config: Vfb2Job, job_id: str) -> np.ndarray:
    """Return the weights of every party's model.json, in the order of `pooled`."""
    weights: list[float] = []
    for name in config.members:
        part = federation.model(name, job_id)
        weights += part["coefficients"]
        weights += [] if part["intercept"] is None else [part["intercept"]]
    return np.array(weights)
