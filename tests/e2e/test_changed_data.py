"""A party that comes back with other data than a job began with ends the job, whatever the algorithm."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.rpc.pb.active_party_pb2 import JOB_FAILED
from common.runtime.config.job_kinds import Job
from tests.e2e.clicks import Clicks, clicks_job
from tests.e2e.conftest import Start
from tests.e2e.parties import Federation, ended, in_the_middle
from tests.e2e.vfb2_parties import four, job, write_tables

pytestmark = pytest.mark.e2e


def change_a_cell(path: Path) -> None:
    head, first, rest = path.read_text().split("\n", 2)
    path.write_text("\n".join((head, f"{first.rpartition(',')[0]},0.25", rest)))


async def comes_back_with_other_data(federation: Federation, config: Job, path: Path) -> None:
    """Kill party_a in the middle, change one cell of its file, and start it again: the job must fail."""
    async with federation.operator() as operator:
        job_id = await in_the_middle(operator, config, 1)
    federation["party_a"].kill()
    change_a_cell(path)
    federation["party_a"].start()
    async with federation.operator() as operator:
        record = await ended(operator, job_id)
    assert record.status == JOB_FAILED
    assert record.error.what.startswith("party_a reports: ")
    assert "what it began with has changed (data set" in record.error.what


async def test_vfb2_does_not_go_on_with_other_data(start: Start, tmp_path: Path) -> None:
    tables = write_tables(tmp_path)
    federation = start(*four(tables), circle=True)
    config = job(job="changed", train={"epochs": 400, "batch_size": 2, "update": "saga"})
    await comes_back_with_other_data(federation, config, tables["party_a"])


async def test_a_split_network_does_not_go_on_with_other_data(start: Start, tmp_path: Path) -> None:
    federation = start(*Clicks(tmp_path).parties())
    config = clicks_job(job="changed", train={"epochs": 200, "batch_size": 16})
    await comes_back_with_other_data(federation, config, tmp_path / "a.csv")
