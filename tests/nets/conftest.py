"""Small networks are fastest on one core, and workers of the test run share the machine."""

from __future__ import annotations

import pytest

from common.nets.threads import use_threads


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    use_threads(1)
