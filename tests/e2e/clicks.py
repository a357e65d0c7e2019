"""Impressions and clicks that two parties know something about: small tables with categories and a number."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.runtime.config.networks import NetJob
from tests.e2e.parties import Settings, changed, party

ROWS, COMMON = 700, 500
POLICY = {
    "algorithms": ["splitnn", "jpl", "fpd"],
    "min_rows": 20,
    "min_intersection": 20,
    "prediction": {"rows_per_day": 5000, "min_rows": 10},
}
TYPES = {"default": "categorical", "age": "numeric", "spent": "numeric"}

JOB: Settings = {
    "job": "clicks",
    "algorithm": "splitnn",
    "active": "party_b",
    "passive": ["party_a"],
    "data": {"dataset": "clicks", "label": "clicked", "test_fraction": 0.25, "split_seed": 3},
    "model": {"embedding_dim": 4, "bottom": [16, 8], "top": [16]},
    "train": {"batch_size": 32, "epochs": 3, "patience": None, "learning_rate": 0.01, "seed": 2},
}


def clicks_job(**changes: Any) -> NetJob:
    """Return a small job with a network."""
    return NetJob.model_validate_json(json.dumps(changed(JOB, **changes)))


class Clicks:
    """Everybody's columns side by side; the first COMMON rows are both parties'."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(8)
        self.ids = [f"u{number:05d}" for number in rng.permutation(90_000)[:ROWS]]
        self.city, self.device = rng.integers(0, 5, ROWS), rng.integers(0, 3, ROWS)
        self.age = rng.normal(40, 12, ROWS).tolist()
        self.shop = np.where(rng.random(ROWS) < 0.7, self.city, rng.integers(0, 5, ROWS))
        self.spent = np.exp(rng.normal(3, 1, ROWS))
        score = (
            1.2 * (self.city == 2)
            - 1.0 * (self.shop == 4)
            + 0.02 * (np.array(self.age) - 40)
            + (self.device == 1)
        )
        self.clicked = (score + rng.logistic(size=ROWS) * 0.5 > 0.6).astype(int)

    def of_a(self) -> Path:
        """Write A's table: the common rows, in an order of its own."""
        rows = np.random.default_rng(1).permutation(COMMON)
        cells = [[self.ids[row], f"shop{self.shop[row]}", repr(float(self.spent[row]))] for row in rows]
        return self._write("a", ["id", "shop", "spent"], cells)

    def of_b(self, name: str = "b", rows: Sequence[int] = range(ROWS)) -> Path:
        """Write B's table, or some rows of it."""
        cells = [
            [
                self.ids[at],
                f"city{self.city[at]}",
                f"d{self.device[at]}",
                repr(self.age[at]),
                self.clicked[at],
            ]
            for at in rows
        ]
        return self._write(name, ["id", "city", "device", "age", "clicked"], cells)

    def _write(self, name: str, header: list[str], cells: list[list[Any]]) -> Path:
        path = self.folder / f"{name}.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(cells)
        return path

    def parties(self, **changes: Any) -> tuple[Settings, Settings]:
        """Return the settings of A and B; both have the same rows as new ones, too."""
        own_types = {"a": {"default": "categorical", "spent": "numeric"}}
        own_types["b"] = {"default": "categorical", "age": "numeric"}
        a = {"source": {"csv": str(self.of_a())}, "types": own_types["a"]}
        b = {"source": {"csv": str(self.of_b())}, "types": own_types["b"]}
        return (
            party("party_a", "passive", policy=POLICY, datasets={"clicks": a, "again": a}, **changes),
            party("party_b", "active", policy=POLICY, datasets={"clicks": b, "again": b}, **changes),
        )


def scores_in(path: Path) -> dict[str, float]:
    """Return the scores by id of a predictions file of either kind."""
    with path.open(newline="") as file:
        return {row["id"]: float(row["score"]) for row in csv.DictReader(file)}
