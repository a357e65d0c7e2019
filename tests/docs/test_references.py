"""What the documents refer to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from common.runtime.cli.app import app
from tests.docs.markdown import ROOT, documents, without_blocks

DOCUMENTS = pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
_LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
_CODE = re.compile(r"`([^`\n]+)`")
_TOP = (
    "common/",
    "party_a/",
    "party_b/",
    "coordinator/",
    "protos/",
    "tests/",
    "configs/",
    "benchmarks/",
    "scripts/",
)


@DOCUMENTS
def test_links_lead_to_files(path: Path) -> None:
    targets = [link for link in _LINK.findall(path.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in targets if not (path.parent / link).exists()] == []


@DOCUMENTS
def test_files_that_are_named_exist(path: Path) -> None:
    names = _CODE.findall(without_blocks(path.read_text(encoding="utf-8")))
    named = [name for name in names if name.startswith(_TOP) and " " not in name and "NAME" not in name]
    assert [name for name in named if not (ROOT / name).exists()] == []


@DOCUMENTS
def test_tests_that_are_named_exist(path: Path) -> None:
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_[a-z0-9_]+)`", path.read_text(encoding="utf-8"))
    assert [name for name in named if f"def {name}(" not in sources] == []


@DOCUMENTS
def test_commands_that_are_named_exist(path: Path) -> None:
    known = {command.name for command in app.registered_commands} | {
        group.name for group in app.registered_groups
    }
    named = set(re.findall(r"\bvfl ([a-z]+)\b", path.read_text(encoding="utf-8")))
    assert named <= {str(name) for name in known}


@DOCUMENTS
def test_nothing_of_the_machine_it_was_written_on_is_in_it(path: Path) -> None:
    assert not re.search(r"/(work|home|root|tmp|Users)/", path.read_text(encoding="utf-8"))
