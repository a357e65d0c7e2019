"""The data of the end-to-end tests, and the same training on pooled data as the oracle."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.data.split import BatchSchedule, split_rows
from common.glm.ridge import Descent, penalties, pooled_gradient_descent, with_intercept
from common.runtime.config.job import JobConfig

ROWS = 64
COLUMNS = {"party_a": ("age", "bmi", "bp"), "party_a2": ("sugar", "pulse"), "party_b": ("income", "visits")}


def write_tables(folder: Path) -> dict[str, Path]:
    """Write one CSV file a party: the same ids, their own columns, and the label last at party_b."""
    generator = np.random.default_rng(20)
    # In the order of the ids as text, which is the common order of aligned rows.
    ids = sorted(f"{number:04d}" for number in generator.permutation(9000)[:ROWS])
    columns = {name: generator.normal(size=(ROWS, len(names))) for name, names in COLUMNS.items()}
    weights = {name: generator.normal(size=len(names)) for name, names in COLUMNS.items()}
    label = 5 + sum(columns[name] @ weights[name] for name in COLUMNS) + generator.normal(0, 0.3, ROWS)
    paths = {name: folder / f"{name}.csv" for name in COLUMNS}
    for name, names in COLUMNS.items():
        values = np.column_stack([columns[name], label]) if name == "party_b" else columns[name]
        write_csv(paths[name], (*names, "y") if name == "party_b" else names, ids, values)
    return paths


def pooled(config: JobConfig, paths: Mapping[str, Path], rounds: int) -> Descent:
    """Train on the columns of all parties side by side, those of the active one last, then the intercept."""
    blocks, label, train, _ = prepared(config, paths)
    intercept = "none" if not config.data.intercept else "free"
    if config.data.intercept and config.model.penalize_intercept:
        intercept = "penalized"
    penalty = penalties(sum(block.shape[1] for block in blocks), config.model.l2, intercept)
    blocks[-1] = with_intercept(blocks[-1], intercept)
    rate = config.train.learning_rate
    if rate == "auto":
        rate = 1 / sum(_curvature(block[train]) + config.model.l2 for block in blocks)
        rate *= 0.5 if config.train.batch_size else 1
    schedule = BatchSchedule(len(train), config.train.batch_size, config.train.seed)
    X = np.column_stack(blocks)[train]
    return pooled_gradient_descent(X, label[train], penalty, rate, rounds, schedule.rows_of)


def weights_of(config: JobConfig, models: Mapping[str, Any]) -> np.ndarray:
    """Return the weights of every party's model.json in the order of `pooled`."""
    weights = [weight for name in (*config.passive, config.active) for weight in models[name]["coefficients"]]
    own = models[config.active]["intercept"]
    return np.array([*weights, *([] if own is None else [own])])


def scores_of_test_rows(
    config: JobConfig, paths: Mapping[str, Path], models: Mapping[str, Any]
) -> dict[str, float]:
    """Return id -> prediction of the test rows, by what each party keeps as its part of the model."""
    blocks, _, _, test = prepared(config, paths)
    names = (*config.passive, config.active)
    scores = sum(
        block @ models[name]["coefficients"] + (models[name]["intercept"] or 0.0)
        for name, block in zip(names, blocks, strict=True)
    )
    ids, _ = read_csv(paths[config.active])
    return {ids[row]: float(scores[row]) for row in test}


def prepared(
    config: JobConfig, paths: Mapping[str, Path]
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Return the scaled columns of each party, the labels, and the positions of training and test rows."""
    blocks = [read_csv(paths[name])[1] for name in (*config.passive, config.active)]
    blocks[-1], label = blocks[-1][:, :-1], blocks[-1][:, -1]
    train, test = split_rows(ROWS, config.data.test_fraction, config.data.split_seed)
    if config.data.standardize:
        blocks = [(block - block[train].mean(axis=0)) / block[train].std(axis=0) for block in blocks]
    return blocks, label, train, test


def _curvature(block: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(block.T @ block / len(block)).max())


def read_csv(path: Path) -> tuple[list[str], np.ndarray]:
    with path.open() as file:
        _, *rows = csv.reader(file)
    return [row[0] for row in rows], np.array([row[1:] for row in rows], dtype=float)


def write_csv(path: Path, header: Sequence[str], ids: Sequence[str], values: np.ndarray) -> None:
    lines = [",".join(("id", *header))]
    lines += [",".join((one, *map(repr, row))) for one, row in zip(ids, values.tolist(), strict=True)]
    path.write_text("\n".join(lines) + "\n")
