"""Synthetic jobs: the same rows for every size, written as each party's own file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

# Beside which everything else of a row's label is explained.
NOISE = 0.5
L2 = 1e-3


@dataclass(frozen=True, slots=True)
class Case:
    """One job of the benchmark; `columns` are those of each of the two parties together."""

    rows: int
    columns: int
    key_bits: int
    kind: str
    solver: str
    rounds: int

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.rows} x {self.columns}, {self.key_bits} bits, {self.kind} {self.solver}"


def write_case(case: Case, folder: Path) -> Path:
    """Write both parties' data and the LOCAL.yaml; return its path."""
    rng = np.random.default_rng(11)
    features = rng.standard_normal((case.rows, case.columns))
    labels = features @ rng.standard_normal(case.columns) + NOISE * rng.standard_normal(case.rows) + 2.0
    half = case.columns // 2
    _write(folder / "a.csv", features[:, :half], [f"a{at}" for at in range(half)])
    names = [f"b{at}" for at in range(case.columns - half)] + ["y"]
    _write(folder / "b.csv", np.column_stack([features[:, half:], labels]), names)
    path = folder / "local.yaml"
    path.write_text(yaml.safe_dump(_settings(case), sort_keys=False), encoding="utf-8")
    return path


def _write(path: Path, values: np.ndarray, names: list[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(["id", *names]) + "\n")
        for row, cells in enumerate(values.tolist()):
            file.write(",".join([f"r{row:07d}", *map(repr, cells)]) + "\n")


def _settings(case: Case) -> dict[str, object]:
    parties: list[dict[str, object]] = [{"party": "coordinator", "role": "coordinator"}]
    for party, role, name in (("party_a", "passive", "a.csv"), ("party_b", "active", "b.csv")):
        parties.append({"party": party, "role": role, "datasets": {"rows": {"source": {"csv": name}}}})
    return {
        "parties": parties,
        "job": {
            "job": "benchmark",
            "algorithm": "he_linear",
            "active": "party_b",
            "passive": ["party_a"],
            "coordinator": "coordinator",
            "data": {"dataset": "rows", "label": "y", "test_fraction": 0.0, "standardize": True},
            "model": {"l2": L2},
            "train": {
                "solver": case.solver,
                "max_rounds": case.rounds,
                "tolerance": 1e-8 if case.solver == "cg" else None,
                "loss_every": 1,
            },
            "crypto": {"key_bits": case.key_bits, "precision_bits": 32, "rounds": case.kind},
        },
    }
