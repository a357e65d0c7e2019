"""Small keys for every service that these tests start, and the usual three parties."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.parties import Federation, Settings, party
from tests.e2e.tables import write_tables

Start = Callable[..., Federation]


@pytest.fixture(autouse=True, scope="module")
def small_keys() -> Iterator[None]:
    """Let this process, and the services and commands it starts, accept keys that protect nothing."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("VFL_UNSAFE_TEST_KEYS", "1")
        yield


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the CSV file of each party."""
    return write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Return a function that starts a federation of given parties, which lasts as long as the module."""
    federations: list[Federation] = []

    def begin(*settings: Settings, circle: bool = False) -> Federation:
        federations.append(Federation(tmp_path_factory.mktemp("federation")))
        return federations[-1].start_circle(*settings) if circle else federations[-1].start(*settings)

    yield begin
    for federation in federations:
        federation.stop()


@pytest.fixture(scope="module")
def three(start: Start, tables: dict[str, Path]) -> Federation:
    """Return party_a, party_b and the coordinator, running."""
    return start(*three_parties(tables))


def three_parties(tables: dict[str, Path]) -> tuple[Settings, ...]:
    """Return the settings of the usual three parties."""
    return (
        party("coordinator", "coordinator"),
        party("party_a", "passive", {"patients": tables["party_a"]}),
        party("party_b", "active", {"patients": tables["party_b"]}),
    )
