"""The benchmark splits honestly and prints and draws what came out."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.jpl.data import split
from benchmarks.jpl.report import draw, print_leaks, print_lift
from benchmarks.jpl.sets import Source
from benchmarks.jpl.trials import SPLITNN, Plan, Result
from common.nets.attacks import LabelLeak
from common.nets.fields import FieldSettings
from common.nets.lift import Outcome
from common.nets.scores import Scores
from tests.nets.nets_cases import categories, numbers, table

G = np.random.default_rng(2)
SOURCE = Source(
    "set",
    table({"a": categories([f"v{one}" for one in G.integers(0, 5, 1000)])}),
    table({"b": numbers(G.normal(size=1000))}),
    (G.random(1000) < 0.3).astype(np.float64),
)
METHODS = (SPLITNN, "local", "local_twice", "fpd_usual_twice", "fpd_twice", "jpl_without_a", "jpl")


def outcomes() -> list[Outcome]:
    return [
        Outcome(name, seed, overlap, Scores(0.6 + 0.01 * at + 0.001 * seed, 0.5, 0.02))
        for overlap in (0.2, 0.8)
        for at, name in enumerate(METHODS)
        for seed in (1, 2, 3)
    ]


def test_no_row_has_two_parts_and_a_knows_no_test_row() -> None:
    case = split(SOURCE, 1, 0.8, None, FieldSettings())
    parts = np.concatenate([case.training, case.validation, case.test])
    assert sorted(parts.tolist()) == list(range(1000))
    assert not set(case.shared.tolist()) & set(case.test.tolist())
    known = np.isin(case.training, case.shared).mean()
    assert 0.75 < known < 0.85


def test_a_smaller_overlap_lies_within_a_larger_one_and_seeds_differ() -> None:
    small, large = (split(SOURCE, 1, share, None, FieldSettings()) for share in (0.2, 0.8))
    assert set(small.shared.tolist()) < set(large.shared.tolist())
    np.testing.assert_array_equal(small.test, large.test)
    other = split(SOURCE, 2, 0.8, 500, FieldSettings())
    assert len(other.labels) == 500
    assert not np.array_equal(other.test, large.test)


def test_the_table_shows_paired_differences_and_the_verdict() -> None:
    out = StringIO()
    print_lift(Console(file=out, width=200), Plan(Path(), "set"), outcomes(), 0.8)
    text = out.getvalue()
    assert "+5.00 ± 0.00" in text  # JPL − local: five steps of a point.
    assert "A is worth it" in text


def test_leaks_are_shown_beside_their_cost() -> None:
    out = StringIO()
    leak = LabelLeak(0.8, 0.9, 1.0, 10)
    bare = [Result(tuple(one for one in outcomes() if one.seed == seed), leak) for seed in (1, 2, 3)]
    print_leaks(Console(file=out, width=200), Plan(Path(), "set"), {"none": bare, "max_norm": bare}, 0.8)
    assert "max_norm" in out.getvalue()
    assert "0.900" in out.getvalue()


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    draw(tmp_path / "lift.png", "set", outcomes())
    assert (tmp_path / "lift.png").read_bytes().startswith(b"\x89PNG")
