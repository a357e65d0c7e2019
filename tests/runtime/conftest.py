"""Files that the tests of this floor write."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str, str], Path]

PARTY = """
    party: party_a
    role: passive
    listen: 127.0.0.1:7001
    tls: {ca: certs/ca.pem, cert: certs/party_a.pem, key: certs/party_a.key}
    peers: {party_b: null, coordinator: 127.0.0.1:7003}
    state: state/party_a
"""

JOB = """
    job: ridge
    active: party_b
    passive: [party_a]
    coordinator: coordinator
    data: {dataset: diabetes, label: y}
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a dedented text file and returns its path."""

    def written(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
        return path

    return written


@pytest.fixture
def party_text() -> str:
    """Return a complete party file."""
    return textwrap.dedent(PARTY)


@pytest.fixture
def job_text() -> str:
    """Return a job file with nothing but what has no default."""
    return textwrap.dedent(JOB)
