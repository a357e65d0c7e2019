"""A file for `vfl local` may name party files and a job file instead of repeating them."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import ConfigError
from common.runtime.cli.init import init
from common.runtime.cli.scoring import require_dataset
from common.runtime.config.local import load_local
from common.runtime.config.party import load_party


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    init(tmp_path)
    return tmp_path


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_named_party_files_keep_all_but_their_place(folder: Path) -> None:
    local = load_local(folder / "local.yaml")

    for party in local.parties:
        file = load_party(folder / f"{party.party}.yaml")
        assert (party.role, party.state, party.datasets) == (file.role, file.state, file.datasets)
        assert (party.policy, party.compute, party.deadlines) == (file.policy, file.compute, file.deadlines)


def test_a_policy_keeps_only_those_peers_that_take_part(folder: Path) -> None:
    changed(folder / "party_a.yaml", "[party_b, coordinator]", "[party_b, coordinator, other]")
    changed(folder / "party_a.yaml", "  party_b: null", "  other: null\n  party_b: null")

    policies = {one.party: one.policy.peers for one in load_local(folder / "local.yaml").parties}

    assert policies["party_a"] == ("party_b", "coordinator")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("party_b.yaml", "features: all", "featurs: all"),
        ("job.yaml", "algorithm: he_linear", "algorithm: he_liner"),
    ],
)
def test_a_mistake_in_a_named_file_is_reported_with_that_file(
    folder: Path, name: str, old: str, new: str
) -> None:
    changed(folder / name, old, new)

    with pytest.raises(ConfigError) as caught:
        load_local(folder / "local.yaml")

    assert f"{folder / name}:" in caught.value.where
    assert "did you mean" in caught.value.what


def test_without_a_word_about_prediction_whoever_runs_all_parties_may_score(folder: Path) -> None:
    changed(folder / "party_a.yaml", "    rows_per_day: 10000 ", "    rows_per_day: 7 ")
    local = load_local(folder / "local.yaml")

    allowed = {one.party: one.policy.prediction for one in local.scoring().parties}

    assert allowed["party_a"] is not None
    assert allowed["party_a"].rows_per_day == 7
    assert allowed["party_b"] is not None
    assert allowed["party_b"].min_rows == 1
    assert allowed["coordinator"] is None


def test_a_data_set_that_a_scorer_lacks_is_refused_before_anything_starts(folder: Path) -> None:
    with pytest.raises(ConfigError, match='party_a has no data set "new"'):
        require_dataset(load_local(folder / "local.yaml").scorers, "new", folder / "local.yaml")
