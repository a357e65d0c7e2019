"""Experiment 4: VFB² predicts as well as pooled training, and better than the label holder's block alone."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.vfb2 import pictures, results
from benchmarks.vfb2.data import Pooled
from benchmarks.vfb2.federation import Federation, Layout, Run, federation
from benchmarks.vfb2.pooled import fit

L2 = 1e-4
TEST_FRACTION = 0.3


async def run(
    sets: Sequence[Pooled], seeds: int, layout: Layout, train: dict[str, Any]
) -> list[dict[str, Any]]:
    """Run one job for each set and seed; every seed splits the rows anew."""
    rows: list[dict[str, Any]] = []
    for pooled in sets:
        with tempfile.TemporaryDirectory(prefix="vfl-vfb2-") as folder:
            async with federation(layout, pooled, Path(folder)) as parties:
                for seed in range(1, seeds + 1):
                    rows.append(await _seed(parties, pooled, seed, train))
                    print({key: rows[-1][key] for key in ("set", "seed", "auc", "relative_gap")}, flush=True)
    _report(rows, layout, train)
    return rows


async def _seed(parties: Federation, pooled: Pooled, seed: int, train: dict[str, Any]) -> dict[str, Any]:
    data = {"test_fraction": TEST_FRACTION, "split_seed": seed}
    done = await parties.run({**train, "seed": seed}, data, L2)
    test = _test_rows(done)
    mask = np.ones(len(pooled.labels), dtype=bool)
    mask[test] = False
    block = pooled.blocks(parties.layout.parties)[0]
    aucs = {"vfb2": done.report["metrics"]["test"]["auc"]}
    optimum = fit(pooled.features[mask], pooled.labels[mask], L2)
    for key, features in (("pooled", pooled.features), ("block_only", block)):
        best = fit(features[mask], pooled.labels[mask], L2)
        aucs[key] = float(roc_auc_score(pooled.labels[test], best.scores(features[test])))
    return {
        "set": pooled.name,
        "seed": seed,
        "auc": aucs,
        "objective": done.objectives[-1],
        "optimum": optimum.objective,
        "relative_gap": (done.objectives[-1] - optimum.objective) / optimum.objective,
        "reported_block_auc": done.report["lift"]["local"]["test"]["auc"],
    }


def _test_rows(done: Run) -> list[int]:
    """Return which rows tested: ids are r0, r1, … in the order of the pooled rows."""
    return [int(row["id"][1:]) for row in done.scores if row.get("partition", "test") == "test"]


def _report(rows: list[dict[str, Any]], layout: Layout, train: dict[str, Any]) -> None:
    title = f"Losslessness: q = {layout.parties}, m = {layout.active}, {train['update']}"
    summary = []
    for name in dict.fromkeys(row["set"] for row in rows):
        chosen = [row for row in rows if row["set"] == name]
        aucs = {key: np.array([row["auc"][key] for row in chosen]) for key in chosen[0]["auc"]}
        summary.append(
            {
                "set": name,
                "seeds": len(chosen),
                **{key: f"{values.mean():.5f} ± {values.std(ddof=1):.5f}" for key, values in aucs.items()},
                "worst": float(np.abs(aucs["vfb2"] - aucs["pooled"]).max()),
                "gap": max(row["relative_gap"] for row in chosen),
            }
        )
    picture = results.keep("lossless", rows, title=title, summary=summary, l2=L2)
    columns = {
        "set": "set",
        "seeds": "seeds",
        "block_only": "block only",
        "pooled": "pooled",
        "vfb2": "VFB²",
        "worst": "largest |VFB² − pooled|",
        "gap": "largest relative gap",
    }
    results.show(title, summary, columns)
    pictures.losslessness(picture, rows, title)
