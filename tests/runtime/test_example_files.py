"""Every file of configs/ is what a user may copy: it loads, and its data are where it says."""

from __future__ import annotations

import gzip
import importlib.resources
import runpy
from pathlib import Path

import pytest

from common.data.ids import IdRule
from common.data.reading import read_csv_table
from common.runtime.cli.init import EXAMPLES, init
from common.runtime.config.job_kinds import load_any_job
from common.runtime.config.local import LocalConfig, load_local
from common.runtime.config.party import load_party
from common.runtime.config.yaml_source import read_document

CONFIGS = Path(str(importlib.resources.files("configs")))
ROOT = Path(__file__).resolve().parents[2]
ROWS = {"diabetes": 442, "breast": 513, "motor": 720, "clients": 1800}
# Too large to be brought along: scripts/make_example_data.py writes them from the published files.
MADE_BY_A_SCRIPT = {"credit"}


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_loads_and_names_data_that_are_there(path: Path) -> None:
    keys = read_document(path).data
    if "parties" in keys:
        parties = load_local(path).parties
    elif "party" in keys:
        parties = (load_party(path),)
    else:
        load_any_job(path)
        return
    for party in parties:
        for name, dataset in party.datasets.items():
            if name in MADE_BY_A_SCRIPT:
                assert not dataset.source.csv.exists()
                continue
            table = read_csv_table(
                dataset.source.csv, name, IdRule(**dataset.id.model_dump()), dataset.features
            )
            assert table.rows == ROWS[name]


def test_the_reference_run_is_the_published_one() -> None:
    job = load_local(CONFIGS / "local_reference.yaml").job

    assert job.model.l2 == 0.4 / 309
    assert job.model.penalize_intercept
    assert not job.data.standardize
    assert (job.train.learning_rate, job.train.max_rounds, job.train.batch_size) == (1e-2, 10, None)
    assert (job.crypto.key_bits, job.crypto.precision_bits, job.data.test_fraction) == (2048, 50, 0.3)


def test_the_data_files_are_what_their_script_writes() -> None:
    written = runpy.run_path(str(ROOT / "scripts" / "make_diabetes_csv.py"))["files"]()

    assert written == {name: (CONFIGS / "data" / name).read_text(encoding="utf-8") for name in written}


def test_both_data_files_list_the_same_ids_with_leading_zeros_in_the_same_order() -> None:
    passive, active = (
        [line.split(",")[0] for line in (CONFIGS / "data" / name).read_text().splitlines()[1:]]
        for name in ("diabetes_a.csv", "diabetes_b.csv")
    )

    assert passive == active
    assert passive != sorted(passive)
    assert all(one.startswith("00") for one in passive)


@pytest.mark.parametrize(("name", "rows"), [("breast", 569), ("motor", 800), ("clients", 2000)])
def test_files_of_one_example_are_shuffled_and_four_fifths_of_all_rows_are_common(
    name: str, rows: int
) -> None:
    passive, active = (
        [
            line.split(",")[0]
            for line in (CONFIGS / "data" / f"{name}_{party}.csv").read_text().splitlines()[1:]
        ]
        for party in "ab"
    )

    common = set(passive) & set(active)
    assert len({*passive, *active}) == rows
    assert len(common) == rows - 2 * (rows // 10)
    assert [one for one in passive if one in common] != [one for one in active if one in common]
    assert {len(one) for one in (*passive, *active)} == {len(passive[0])}


def test_the_example_script_reads_published_files_gzipped_or_not(tmp_path: Path) -> None:
    host, guest = tmp_path / "host.csv.gz", tmp_path / "guest.csv"
    host.write_bytes(gzip.compress(b"id,x0\n" + b"".join(b"%d,%d.5\n" % (one, one) for one in range(50))))
    guest.write_text("id,y\n" + "".join(f"{one},{one % 2}\n" for one in reversed(range(50))))
    written = runpy.run_path(str(ROOT / "scripts" / "make_example_data.py"))["files"]("credit", host, guest)

    assert set(written) == {"credit_a.csv", "credit_b.csv"}
    lines = [text.splitlines() for text in written.values()]
    assert [len(one) for one in lines] == [46, 46]
    assert "00000007,7.5" in lines[0] or "00000007,1" in lines[1]


def test_a_local_file_is_a_job_and_its_parties() -> None:
    config: LocalConfig = load_local(CONFIGS / "demo.yaml")

    assert {party.party for party in config.parties} == set(config.job.members)


@pytest.mark.parametrize("algorithm", EXAMPLES)
def test_the_files_of_every_first_job_fit_together(algorithm: str, tmp_path: Path) -> None:
    """Each party agrees to the job, has its data and knows its peers: what `vfl check` would find wrong."""
    init(tmp_path, algorithm)
    local = load_local(tmp_path / "local.yaml")
    job = load_any_job(tmp_path / "job.yaml")

    assert local.job == job
    assert job.algorithm == algorithm
    for name in EXAMPLES[algorithm].parties:
        config = load_party(tmp_path / f"{name}.yaml")
        assert config.role == job.role_of(name)
        assert set(config.peers) == set(job.members) - {name}
        assert algorithm in (*config.policy.algorithms, "local")
        for dataset in config.datasets.values():
            assert dataset.source.csv.is_file()
    assert all(job.data.dataset in party.datasets for party in local.scorers)
