"""`crypto.rounds: auto`: what the active party chooses before the job opens, and the reason it gives."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.runtime.config.job import JobConfig
from common.runtime.config.party import PartyConfig
from party_b.jobs import ActiveJob
from party_b.regression.rounds_choice import choose, settle_rounds


@pytest.fixture(autouse=True)
def small_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VFL_UNSAFE_TEST_KEYS", "1")


def party(folder: Path, cells: str | None = None) -> PartyConfig:
    rows = np.random.default_rng(1).normal(size=(200, 4)).tolist()
    lines = [f"r{at},{','.join(cells or repr(value) for value in row)}" for at, row in enumerate(rows)]
    (folder / "b.csv").write_text("\n".join(["id,b1,b2,b3,y", *lines]) + "\n")
    settings = {
        "party": "party_b",
        "role": "active",
        "listen": "127.0.0.1:0",
        "insecure": True,
        "peers": {"party_a": "127.0.0.1:1", "coordinator": "127.0.0.1:2"},
        "state": str(folder / "state"),
        "datasets": {"rows": {"source": {"csv": str(folder / "b.csv")}}},
        "policy": {"min_key_bits": 256},
    }
    return PartyConfig.model_validate_json(json.dumps(settings))


def job(train: dict[str, Any], **crypto: Any) -> JobConfig:
    settings = {
        "job": "choice",
        "active": "party_b",
        "passive": ["party_a"],
        "coordinator": "coordinator",
        "data": {"dataset": "rows", "label": "y"},
        "train": {"learning_rate": 0.1, **train},
        "crypto": {"key_bits": 512, "rounds": "auto", **crypto},
    }
    return JobConfig.model_validate_json(json.dumps(settings))


def test_many_rounds_are_gram_rounds(tmp_path: Path) -> None:
    chosen, because = choose(party(tmp_path), job({"max_rounds": 10_000}))
    assert chosen == "gram"
    assert "if party_a has as many columns as party_b" in because


def test_mini_batches_are_row_wise(tmp_path: Path) -> None:
    assert choose(party(tmp_path), job({"batch_size": 50})) == ("rowwise", "mini-batches have no others")


def test_a_backend_of_unknown_speed_has_gram_rounds(tmp_path: Path) -> None:
    chosen, because = choose(party(tmp_path), job({"max_rounds": 10}, backend="phe"))
    assert chosen == "gram"
    assert "no estimate" in because


def test_data_that_cannot_be_read_are_left_to_the_opening_to_report(tmp_path: Path) -> None:
    chosen, because = choose(party(tmp_path, cells="text"), job({"max_rounds": 10}))
    assert chosen == "gram"
    assert "no estimate" in because


def test_the_choice_is_durable_and_part_of_the_job_s_digest(tmp_path: Path) -> None:
    kept: list[bytes] = []
    active = ActiveJob("choice-1", job({"max_rounds": 10_000}))
    active.keep = lambda: kept.append(active.config.digest())
    asyncio.run(settle_rounds(active, party(tmp_path)))
    settled = active.config
    assert isinstance(settled, JobConfig)
    assert settled.crypto.rounds == "gram"
    assert kept == [settled.digest()]
    assert active.remarks[0].startswith("crypto.rounds: auto chose Gram rounds: training is estimated at")
    asyncio.run(settle_rounds(active, party(tmp_path)))
    assert (active.config, len(active.remarks)) == (settled, 1)
