"""Jobs that ran once for all attacks on their wire."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.rpc.pb.active_party_pb2 import JOB_FINISHED
from common.runtime.config.errors import UNSAFE_TEST_KEYS
from common.runtime.config.job import JobConfig
from tests.attacks.captured import Captured
from tests.attacks.world import Rows, World, job_of


@pytest.fixture(autouse=True, scope="module")
def small_keys() -> Iterator[None]:
    """Accept keys that protect nothing, here and not in the modules that come after."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(UNSAFE_TEST_KEYS, "1")
        yield


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a place for services that a test starts itself."""
    return World(tmp_path)


def captured(root: Path, rows: Rows, job: JobConfig) -> Captured:
    """Run a job between real services; return everything that was on their wires."""
    world = World(root)
    rows.write(world, job.passive)

    async def run() -> int:
        async with world.running("coordinator", *job.passive, "party_b"):
            record = await world.train(job)
        assert record.status == JOB_FINISHED, record.error.what
        return record.rounds

    with pytest.MonkeyPatch.context() as environment:
        # A wire of the session is made before the module that needs it has small keys of its own.
        environment.setenv(UNSAFE_TEST_KEYS, "1")
        return Captured(world.wire, rows, asyncio.run(run()))


@pytest.fixture(scope="session")
def full_batch(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """Return the wire of a job of one passive party, all rows in every round, with the loss."""
    job = job_of(train={"max_rounds": 120, "learning_rate": 0.05})
    return captured(tmp_path_factory.mktemp("full"), Rows.drawn(40, (4, 3)), job)


@pytest.fixture(scope="session")
def two_passive(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """Return the wire of a mini-batch job of two passive parties with the loss in every second round."""
    train = {"max_rounds": 12, "learning_rate": 0.05, "batch_size": 20, "loss_every": 2}
    job = job_of(passive=["party_a", "party_a2"], train=train)
    return captured(tmp_path_factory.mktemp("two"), Rows.drawn(41, (4, 3)), job)


@pytest.fixture(scope="session")
def gram(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """Return the wire of a job with Gram rounds and one passive party, with the loss."""
    job = job_of(train={"max_rounds": 160, "learning_rate": 0.05}, crypto={"rounds": "gram"})
    return captured(tmp_path_factory.mktemp("gram"), Rows.drawn(40, (4, 3)), job)


@pytest.fixture(scope="session")
def gram_two_passive(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """Return the wire of a job with Gram rounds, conjugate gradients and two passive parties."""
    train = {"max_rounds": 6, "solver": "cg", "tolerance": 1e-12}
    job = job_of(passive=["party_a", "party_a2"], train=train, crypto={"rounds": "gram"})
    return captured(tmp_path_factory.mktemp("gram2"), Rows.drawn(41, (4, 3)), job)


@pytest.fixture(scope="session")
def phe_backend(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """Return the wire of a job whose arithmetic is the reference implementation's."""
    job = job_of(train={"max_rounds": 3}, crypto={"backend": "phe"})
    return captured(tmp_path_factory.mktemp("phe"), Rows.drawn(40, (4, 3)), job)
