"""Every file of configs/ is what a user may copy: it loads, and its data are where it says."""

from __future__ import annotations

import importlib.resources
import runpy
from pathlib import Path

import pytest

from common.data.ids import IdRule
from common.data.reading import read_csv_table
from common.runtime.config_job import load_job
from common.runtime.config_local import LocalConfig, load_local
from common.runtime.config_party import load_party
from common.runtime.yaml_source import read_document

CONFIGS = Path(str(importlib.resources.files("configs")))
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_loads_and_names_data_that_are_there(path: Path) -> None:
    keys = read_document(path).data
    if "parties" in keys:
        parties = load_local(path).parties
    elif "party" in keys:
        parties = (load_party(path),)
    else:
        load_job(path)
        return
    for party in parties:
        for name, dataset in party.datasets.items():
            table = read_csv_table(
                dataset.source.csv, name, IdRule(**dataset.id.model_dump()), dataset.features
            )
            assert table.rows == 442


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


def test_a_local_file_is_a_job_and_its_parties() -> None:
    config: LocalConfig = load_local(CONFIGS / "demo.yaml")

    assert {party.party for party in config.parties} == set(config.job.members)
