"""The records of B's jobs on a disk that is damaged or full."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from common.errors import ColonnadeError, JobError
from common.rpc.pb import active_party_pb2 as pb
from common.runtime.checkpoint import MAX_ATTEMPTS, Checkpoint
from common.runtime.config.job import JobConfig
from common.runtime.config.party import PartyConfig
from common.runtime.state import JobStore
from party_b.jobs import MAX_FUTILE_ATTEMPTS, STATUS_FILE, ActiveJob, JobBook

JOB = JobConfig.model_validate_json(
    json.dumps(
        {
            "job": "kept",
            "active": "party_b",
            "passive": ["party_a"],
            "coordinator": "coordinator",
            "data": {"dataset": "d", "label": "y"},
        }
    )
)


def book(store: JobStore, conduct: Callable[[ActiveJob], Awaitable[None]]) -> JobBook:
    return JobBook(PartyConfig.model_construct(party="party_b"), store, conduct)


async def done(job: ActiveJob) -> None:
    """A job without any work."""


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    made = JobStore(tmp_path / "state")
    made.open()
    return made


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"7", b"\xff\xfe", b'{"job": 1}'])
async def test_a_damaged_record_is_left_alone_and_the_service_starts(store: JobStore, content: bytes) -> None:
    first = book(store, done)
    kept = first.submit(JOB)
    await asyncio.wait({kept.task})
    store.write_bytes("damaged", STATUS_FILE, content)

    again = book(store, done)
    await again.recall()

    assert [job.job_id for job in again.all()] == [kept.job_id]
    assert again.find("kept").status == pb.JOB_FINISHED


async def test_a_name_means_the_newest_job_that_finished_where_a_model_is_asked_for(store: JobStore) -> None:
    async def work(job: ActiveJob) -> None:
        if len(jobs.all()) > 1:
            raise JobError("nobody answers")

    jobs = book(store, work)
    first = jobs.submit(JOB)
    await asyncio.wait({first.task})
    assert jobs.find_trained("kept") is first
    second = jobs.submit(JOB)
    await asyncio.wait({second.task})
    assert second.status == pb.JOB_FAILED
    assert jobs.find("kept") is second
    assert jobs.find_trained("kept") is first
    assert jobs.find_trained(second.job_id) is second


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": "x"},
        {"rounds": None},
        {"error": {"zzz": 1}},
        {"status": "NO"},
        {"status": None},
        {"job": []},
    ],
)
async def test_a_record_with_a_wrong_value_is_left_alone(store: JobStore, change: dict[str, Any]) -> None:
    kept = book(store, done).submit(JOB)
    await asyncio.wait({kept.task})
    record = store.read_json(kept.job_id, STATUS_FILE)
    store.write_json(kept.job_id, STATUS_FILE, record | change)

    again = book(store, done)
    await again.recall()

    assert again.all() == []


async def test_a_disk_that_fills_up_while_a_job_waits_ends_the_job_and_everybody_hears_of_it(
    store: JobStore,
) -> None:
    job = book(store, done).submit(JOB)
    folder = store.job_dir(job.job_id)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.touch()  # Nothing can be written below it any more.

    async with asyncio.timeout(5):
        events = [event async for event in job.watch()]

    assert events[-1].record.status == pb.JOB_FAILED
    assert "cannot be" in events[-1].message


def test_a_folder_that_cannot_be_made_is_an_error_of_the_state(store: JobStore) -> None:
    (store.root / "jobs" / "full").touch()
    with pytest.raises(ColonnadeError, match="cannot be made"):
        store.write_json("full", STATUS_FILE, {})


def left_running(store: JobStore, config: dict[str, Any] | None = None) -> str:
    """Leave the record that a killed service leaves of a job under way; return its id."""
    kept = {
        "job": config or json.loads(JOB.canonical_json()),
        "status": "RUNNING",
        "submitted_unix_s": 1.0,
        "ended_unix_s": 0.0,
        "rounds": 0,
        "loss": None,
        "attempt": 2,
        "losses": ["earlier"],
        "error": None,
    }
    store.write_json("kept-1", STATUS_FILE, kept)
    return "kept-1"


async def test_a_job_under_way_is_conducted_again_under_its_id_in_a_later_attempt(store: JobStore) -> None:
    job_id, conducted = left_running(store), []

    async def conduct(job: ActiveJob) -> None:
        # Durable before anybody is asked to open it: a number that is used twice would be refused.
        conducted.append((job.job_id, job.attempt, store.read_json(job.job_id, STATUS_FILE)["attempt"]))

    again = book(store, conduct)
    await again.recall()
    job = again.find(job_id)
    assert job.task is not None
    await job.task

    assert conducted == [(job_id, 3, 3)]
    assert job.status == pb.JOB_FINISHED
    assert job.losses[0] == "earlier"
    assert "the service of party_b stopped" in job.losses[1]


async def test_a_job_that_cannot_go_on_has_failed_and_says_so(store: JobStore) -> None:
    prediction = {"job": "p", "algorithm": "predict", "active": "party_b", "passive": [], "model": "m-1"}
    job_id = left_running(store, prediction | {"data": {"dataset": "d"}, "mode": "batch"})
    again = book(store, done)
    await again.recall()
    assert again.find(job_id).status == pb.JOB_FAILED
    assert "stopped while the job ran" in again.find(job_id).record().error.what


async def test_a_job_that_is_lost_at_the_same_place_again_and_again_is_given_up(store: JobStore) -> None:
    job = ActiveJob("kept-1", JOB)
    assert all(job.may_go_on() for _ in range(MAX_FUTILE_ATTEMPTS - 1))
    assert not job.may_go_on()
    job.rounds += 1
    assert job.may_go_on()
    job.attempt = MAX_ATTEMPTS
    assert not job.may_go_on()


async def test_a_clock_that_is_set_back_leaves_a_job_s_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of progress come by that time: they would stay away for as long as the clock was set back."""
    job = ActiveJob("kept-1", JOB)
    await job.advance("before")
    monkeypatch.setattr(time, "time", lambda: job.submitted_s - 3600.0)
    await job.advance("after")
    await job.end(pb.JOB_FINISHED, "finished")
    times = [event.elapsed_s async for event in job.watch()]
    assert len(times) == 3
    assert 0.0 <= times[0] <= times[1] <= times[2]


async def test_what_a_job_needed_to_go_on_goes_when_it_ends(store: JobStore) -> None:
    job_id = left_running(store)
    checkpoint = Checkpoint.of(store, job_id)
    checkpoint.keep("begun", {})
    again = book(store, done)
    await again.recall()
    task = again.find(job_id).task
    assert task is not None
    await task
    assert not checkpoint.folder.exists()
