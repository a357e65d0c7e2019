"""Dockerfile, .dockerignore and the scripts around them: what enters the image, and as whom it runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHELL_SCRIPTS = (
    "check",
    ".ci/run",
    "configs/docker/certificates.sh",
    "configs/docker/demo.sh",
    "scripts/container_serve.sh",
    "scripts/docker_without_registry.sh",
)


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions with their arguments, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", text, flags=re.M))
    found = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        found.append((word, rest))
    return found


def copied() -> list[str]:
    """Return what the Dockerfile takes from the build context."""
    sources = []
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            sources += rest.split()[:-1]
    return sources


def test_containers_do_not_run_as_root() -> None:
    users = [rest for word, rest in instructions() if word == "USER"]
    assert users == ["colonnade"]


def test_everything_that_is_copied_exists_and_is_let_through() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored, "nothing enters the build unless it is named"
    let_through = {line[1:] for line in ignored if line.startswith("!")}
    assert set(copied()) == let_through
    assert not [source for source in copied() if not (ROOT / source).exists()]


def test_the_image_holds_what_a_wheel_holds() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = re.search(r"^packages = \[(.*)\]$", pyproject, flags=re.M)
    assert packages is not None
    assert set(re.findall(r'"(\w+)"', packages[1])) <= set(copied())


def test_nothing_of_the_building_machine_is_written_into_the_dockerfile() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").lower()
    assert not re.search(r"https?://|index.url|_proxy|trusted.host", text)


def test_every_stage_starts_from_the_base_image_that_the_script_makes() -> None:
    stages = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    assert set(stages) == {"${BASE_IMAGE}"}
    defaults = [rest for word, rest in instructions() if word == "ARG"]
    assert defaults == ["BASE_IMAGE=python:3.11-slim-bookworm", 'EXTRAS=""']
    script = (ROOT / "scripts" / "docker_without_registry.sh").read_text(encoding="utf-8")
    assert "s/^ARG BASE_IMAGE=//p" in script


@pytest.mark.parametrize("name", SHELL_SCRIPTS)
def test_a_shell_script_is_executable_and_parses(name: str) -> None:
    path = ROOT / name
    shell = "sh" if path.read_text(encoding="utf-8").startswith("#!/bin/sh") else "bash"
    program = shutil.which(shell)
    assert program is not None
    assert path.stat().st_mode & 0o111
    parsed = subprocess.run(
        [program, "-n", str(path)], capture_output=True, text=True, check=False, timeout=30
    )
    assert parsed.returncode == 0, parsed.stderr
