"""`python -m benchmarks.vfb2 async|parties|dominators|lossless|echo`: the paper's experiments on services.

Each prints a table and leaves JSON and a picture in benchmarks/vfb2/results/. Data come from --data, or from
the folder that COLONNADE_DATA names, or are the example rows of configs/data.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from pathlib import Path

from benchmarks.vfb2 import asynchrony, dominated, lossless, scaling
from benchmarks.vfb2.data import load
from benchmarks.vfb2.federation import Layout


def main() -> None:
    """Run one experiment."""
    options = _options()
    asyncio.run(_EXPERIMENTS[options.experiment](options))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vfb2", description=__doc__)
    parser.add_argument("experiment", choices=sorted(_EXPERIMENTS))
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--set", nargs="+", default=None, help="a9a, credit, covtype")
    parser.add_argument("--rows", type=int, help="a sample of so many rows")
    parser.add_argument("--parties", type=int, default=4, help="q")
    parser.add_argument("--active", type=int, default=2, help="m")
    parser.add_argument("--counts", type=int, nargs="+", help="of parties, or of dominators")
    parser.add_argument("--latency-ms", type=float, nargs="+", help="one way, between parties")
    parser.add_argument(
        "--updates", nargs="+", choices=["sgd", "svrg", "saga"], help="async: measure only these anew"
    )
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int, nargs="+")
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--slower-by", type=float, default=0.4, help="async: how much slower one party is")
    parser.add_argument("--column-ms", type=float, default=0.5, help="parties: delay of a column, emulated")
    parser.add_argument("--seeds", type=int, default=10, help="lossless: how many splits")
    parser.add_argument("--repeats", type=int, default=5, help="echo: the fastest counts")
    parser.add_argument(
        "--under-way", type=int, nargs="+", default=[32, 128], help="echo: updates, max_staleness"
    )
    return parser.parse_args()


async def _async(options: argparse.Namespace) -> None:
    pooled = load((options.set or ["credit"])[0], options.data).first(options.rows)
    paces = {
        name: {mode: _pace(options, pace) for mode, pace in modes.items()}
        for name, modes in asynchrony.PACES.items()
        if name in (options.updates or asynchrony.PACES)
    }
    usual = asynchrony.Settings(paces)
    settings = replace(
        usual,
        latencies_ms=tuple(options.latency_ms or usual.latencies_ms),
        slower_by=options.slower_by,
        batch_size=(options.batch_size or [usual.batch_size])[0],
    )
    await asynchrony.run(pooled, settings, Layout(options.parties, options.active))


def _pace(options: argparse.Namespace, usual: asynchrony.Pace) -> asynchrony.Pace:
    step, epochs = options.learning_rate or usual.step, options.epochs or usual.epochs
    return replace(usual, step=step, epochs=epochs)


async def _parties(options: argparse.Namespace) -> None:
    pooled = load((options.set or ["a9a"])[0], options.data).first(options.rows or 2_000)
    train = _train(options, "saga", 5, 32)
    await scaling.parties(pooled, options.counts or (2, 4, 8), options.column_ms / 1e3, train)


async def _dominators(options: argparse.Namespace) -> None:
    pooled = load((options.set or ["a9a"])[0], options.data).first(options.rows or 4_000)
    layout = Layout(options.parties, 1, (options.latency_ms or [20.0])[0] / 1e3)
    train = {**_train(options, "saga", 8, 32), "max_staleness": 4}
    await scaling.dominators(pooled, options.counts or (1, 2, 3), layout, train)


async def _lossless(options: argparse.Namespace) -> None:
    sets = [load(name, options.data).first(options.rows) for name in options.set or ("credit", "a9a")]
    # A step that two dominators with four updates in flight each still bear (see asynchrony.PACES).
    train = {**_train(options, "svrg", 12, 128), "learning_rate": options.learning_rate or 0.15}
    train["max_staleness"] = 4
    await lossless.run(sets, options.seeds, Layout(options.parties, options.active), train)


async def _echo(options: argparse.Namespace) -> None:
    pooled = load((options.set or ["credit"])[0], options.data).first(options.rows)
    await dominated.run(pooled, options.batch_size or (1, 256), options.under_way, options.repeats)


def _train(options: argparse.Namespace, update: str, epochs: int, batch_size: int) -> dict[str, object]:
    return {
        "update": update,
        "epochs": options.epochs or epochs,
        "batch_size": (options.batch_size or [batch_size])[0],
        "learning_rate": options.learning_rate or 0.05,
    }


_EXPERIMENTS = {
    "async": _async,
    "parties": _parties,
    "dominators": _dominators,
    "lossless": _lossless,
    "echo": _echo,
}


if __name__ == "__main__":
    main()
