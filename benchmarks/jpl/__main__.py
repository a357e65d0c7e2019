"""`python -m benchmarks.jpl SET …`: what A is worth to B on real sets.

    python -m benchmarks.jpl planted_ctr --data FOLDER                 lift table
    python -m benchmarks.jpl planted_ctr --data FOLDER --ablations     each term of JPL left out
    python -m benchmarks.jpl planted_ctr --data FOLDER --overlaps 0.05,0.1,0.2,0.4,0.8 --picture lift.png
    python -m benchmarks.jpl planted_ctr --data FOLDER --protections   what the protections cost and hide
    python -m benchmarks.jpl planted_ctr --data FOLDER --latency       one row at a time

The optimiser's settings are chosen on the validation rows of seeds that are not reported, by B's model alone.
Every result is also one line of JSON (`--json FILE`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.jpl.latency import measure
from benchmarks.jpl.report import draw, print_leaks, print_lift
from benchmarks.jpl.trials import Guards, Plan, Result, local_validation, run_seed
from common.nets.baselines import ablations, fpd_usual, methods, twice
from common.nets.lift import Outcome
from common.nets.protect import LabelDP, Marvell, MaxNorm, Release
from common.nets.recipe import Recipe
from common.nets.shape import Optimisation

_TUNING_SEEDS = (1001, 1002)
_GRID = tuple(product((1e-3,), (1e-3, 1e-2, 3e-2)))
_SECRET = 20_260


def main() -> None:
    """Run the sets one after another, seeds in parallel."""
    options = _options()
    context = multiprocessing.get_context("spawn")
    console = Console(width=150)
    for name in options.sets:
        if options.latency:
            console.print(name, measure(Plan(options.data, name, options.rows)))
            continue
        with ProcessPoolExecutor(options.processes, mp_context=context) as executor:
            plan = Plan(options.data, name, options.rows)
            plan = (
                _tuned(plan, executor, console)
                if options.l2 is None
                else replace(plan, optimisation=Optimisation(embedding_l2=options.l2))
            )
            if options.protections:
                _protections(plan, options, executor)
                continue
            outcomes = _lift(plan, options, executor)
        for overlap in options.overlaps:
            print_lift(console, plan, outcomes, overlap)
        if options.picture:
            draw(
                options.picture.with_stem(f"{options.picture.stem}_{name.replace(':', '_')}"), name, outcomes
            )


def _lift(plan: Plan, options: argparse.Namespace, executor: ProcessPoolExecutor) -> list[Outcome]:
    recipes = {**methods(), "fpd_usual_twice": twice(fpd_usual())}
    if options.ablations:
        recipes |= {f"jpl − {term}": one for term, one in ablations(recipes["jpl"]).items()}
    jobs = [
        executor.submit(run_seed, plan, seed, overlap, recipes)
        for overlap, seed in product(options.overlaps, options.seeds)
    ]
    for job in as_completed(jobs):
        _write(options, plan, job.result().outcomes)
    return [one for job in jobs for one in job.result().outcomes]


def _protections(plan: Plan, options: argparse.Namespace, executor: ProcessPoolExecutor) -> None:
    """Train behind each protection; print what it hides and what it costs."""
    guards = [
        Guards(),
        Guards("max_norm", MaxNorm(_SECRET)),
        *(Guards(f"marvell({power:g})", Marvell(power, _SECRET)) for power in (1.0, 4.0)),
        *(Guards(f"label_dp({epsilon:g})", LabelDP(epsilon, _SECRET)) for epsilon in (3.0, 1.0)),
        *(Guards(f"clip 1, noise {noise:g}", release=Release(1.0, noise, _SECRET)) for noise in (0.0, 0.5)),
    ]
    chosen = methods()
    recipes: dict[str, Recipe] = {name: chosen[name] for name in ("fpd", "jpl")}
    alone = {**recipes, "local": chosen["local"]}
    jobs = {
        guard.label: [
            executor.submit(run_seed, plan, seed, options.overlaps[0], recipes if at else alone, guard)
            for seed in options.seeds
        ]
        for at, guard in enumerate(guards)
    }
    results: dict[str, list[Result]] = {
        label: [job.result() for job in submitted] for label, submitted in jobs.items()
    }
    print_leaks(Console(width=150), plan, results, options.overlaps[0])


def _tuned(plan: Plan, executor: ProcessPoolExecutor, console: Console) -> Plan:
    """Return the plan with the settings that serve B alone best on validation rows."""
    candidates = [Optimisation(learning_rate=rate, embedding_l2=l2) for rate, l2 in _GRID]
    jobs = [
        [executor.submit(local_validation, plan, seed, one) for seed in _TUNING_SEEDS] for one in candidates
    ]
    scores = [float(np.mean([job.result() for job in seeds])) for seeds in jobs]
    best = candidates[int(np.argmax(scores))]
    shown = f"learning rate {best.learning_rate:g}, embedding L2 {best.embedding_l2:g}"
    console.print(f"{plan.name}: B alone does best on validation rows with {shown} (AUC {max(scores):.4f})")
    return replace(plan, optimisation=best)


def _write(options: argparse.Namespace, plan: Plan, outcomes: Sequence[Outcome]) -> None:
    if options.json is None:
        return
    with options.json.open("a", encoding="utf-8") as file:
        for one in outcomes:
            line = {"benchmark": "jpl", "set": plan.name, "rows": plan.most_rows, **asdict(one)}
            file.write(json.dumps(line) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What A is worth to B: JPL beside its baselines.")
    parser.add_argument("sets", nargs="+", help="of sets.py; NAME:swap gives A's columns to B")
    default = os.environ.get("VFL_DATA")
    parser.add_argument("--data", type=Path, default=default, required=default is None, help="or VFL_DATA")
    parser.add_argument("--seeds", type=_whole_numbers, default=(1, 2, 3, 4, 5), help="such as 1,2,3 or 1-10")
    parser.add_argument("--overlaps", type=_shares, default=(0.8,), help="such as 0.1,0.4,0.8")
    parser.add_argument("--rows", type=int, help="a random sample of so many rows")
    parser.add_argument("--ablations", action="store_true", help="also JPL without each of its terms")
    parser.add_argument("--protections", action="store_true", help="attacks, protections and their cost")
    parser.add_argument("--l2", type=float, help="embedding L2, instead of choosing it on validation rows")
    parser.add_argument("--latency", action="store_true", help="how long one prediction takes")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--picture", type=Path, help="AUC against overlap, as PNG or SVG")
    parser.add_argument("--json", type=Path, help="add one line for each method, seed and overlap")
    return parser.parse_args()


def _whole_numbers(text: str) -> tuple[int, ...]:
    first, dash, last = text.partition("-")
    return tuple(range(int(first), int(last) + 1)) if dash else tuple(int(one) for one in text.split(","))


def _shares(text: str) -> tuple[float, ...]:
    return tuple(float(one) for one in text.split(","))


if __name__ == "__main__":
    main()
