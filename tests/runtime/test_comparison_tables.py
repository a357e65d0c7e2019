"""What a terminal shows of a comparison of networks over seeds."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from common.runtime.cli.results import comparison_tables
from common.runtime.config.networks import NetJob

BETTER = {
    "method": "jpl",
    "reference": "local ×2",
    "overlap": 1.0,
    "mean": 1.149,
    "half_width": 0.46,
    "seeds": 5,
    "says": "better",
}
WITHOUT = {
    "method": "jpl − ranking_shared",
    "reference": "jpl",
    "overlap": 1.0,
    "mean": -0.3,
    "half_width": 0.1,
    "seeds": 5,
    "says": "worse",
}


def shown(networks: dict[str, Any] | None) -> str:
    text = io.StringIO()
    for table in comparison_tables({"networks": networks}):
        table.print(Console(file=text, width=120))
    return text.getvalue()


def test_the_terminal_shows_paired_differences_with_intervals_and_the_ablation() -> None:
    lines = shown({"own": "jpl", "compared": [BETTER], "ablation": [WITHOUT]}).splitlines()
    assert lines[0].startswith("jpl, AUC points against")
    assert lines[1].split() == ["local", "×2", "100%", "+1.15", "±", "0.46", "5", "better"]
    assert lines[3].split() == ["ranking", "shared", "-0.30", "±", "0.10", "5", "the", "term", "helps"]


@pytest.mark.parametrize("networks", [None, {"own": "jpl", "compared": [], "ablation": []}])
def test_without_a_comparison_it_shows_none(networks: dict[str, Any] | None) -> None:
    assert shown(networks) == ""


@pytest.mark.parametrize(
    ("algorithm", "compare", "trained"),
    [
        ("splitnn", {}, ("local", "splitnn")),
        ("splitnn", {"algorithms": ["local", "jpl"]}, ("local", "jpl")),
        ("jpl", {}, ("local", "local_twice", "fpd", "fpd_twice", "jpl_without_a", "jpl", "splitnn")),
        ("jpl", None, ()),
    ],
)
def test_a_comparison_trains_what_was_asked_for_or_what_fits_the_algorithm(
    algorithm: str, compare: dict[str, Any] | None, trained: tuple[str, ...]
) -> None:
    job = {"job": "j", "algorithm": algorithm, "active": "b", "passive": ["a"], "compare": compare}
    parsed = NetJob.model_validate_json(json.dumps({**job, "data": {"dataset": "d", "label": "y"}}))
    assert parsed.compared == trained
