"""A wheel holds our packages and nothing else: top-level names are shared with the whole environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TOP_LEVEL = {"common", "party_a", "party_b", "coordinator", "configs"}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The paths in a wheel that is built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    (source / "README.md").write_text("Its text does not matter here.")
    for name in (*TOP_LEVEL, "pyproject.toml", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    # What lies about in a working tree must not slip in.
    for stray in (
        "state/party_a/model.json",
        "certs/ca.key",
        "tests/test_x.py",
        "out/report.json",
        "notes.py",
    ):
        (source / stray).parent.mkdir(parents=True, exist_ok=True)
        (source / stray).write_text("x")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_top_level_of_a_wheel_is_exactly_our_packages(names: list[str]) -> None:
    top_level = {name.split("/")[0] for name in names}

    assert {name for name in top_level if not name.endswith(".dist-info")} == TOP_LEVEL
    assert sum(name.endswith(".dist-info") for name in top_level) == 1


@pytest.mark.parametrize(
    "name",
    [
        "configs/demo.yaml",
        "configs/party_a.yaml",
        "configs/data/diabetes_a.csv",
        "configs/data/diabetes_b.csv",
        "common/rpc/pb/job_pb2.py",
        "party_b/reporting/report.html.j2",
    ],
)
def test_files_that_are_read_at_run_time_are_in_the_wheel(names: list[str], name: str) -> None:
    assert name in names


def test_no_key_and_no_state_is_in_the_wheel(names: list[str]) -> None:
    assert not [name for name in names if name.endswith((".key", ".pem", ".pyc", ".lock"))]
    assert not [name for name in names if "state/" in name and not name.startswith("common/")]
