"""A guest that was restarted: what its disk says of jobs of others, and how they end without being open."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from common.errors import Refused, RemoteProtocolError, UnknownJob
from common.rpc.pb import job_pb2 as pb
from common.runtime.checkpoint import TRAINED, Checkpoint
from common.runtime.config.job import JobConfig
from common.runtime.config.party import Deadlines, PartyConfig
from common.runtime.hosting import JobHost
from common.runtime.saved_model import MODEL_FILE
from common.runtime.state import STATUS_FILE, JobStore
from common.runtime.unfinished import Ending, GuestDisk, OpenedJob, Spent

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
TURN = pb.Turn(job_id="kept-1", job_digest=JOB.digest(), round=7, attempt=3)
SPENT = Spent(10, 20, {"gradient": 0.5})


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    made = JobStore(tmp_path)
    made.open()
    return made


@pytest.fixture
def opened(store: JobStore) -> Checkpoint:
    """Return the checkpoint of a job that was opened before the restart."""
    GuestDisk(store).note_opening(OpenedJob("kept-1", JOB, 2))
    return Checkpoint.of(store, "kept-1")


def host(store: JobStore, peer_s: float = 30.0) -> JobHost[None]:
    """Return what a guest's service has after its start."""

    async def nothing(*_: object) -> None:
        raise AssertionError("no job is open in memory")

    deadlines = Deadlines(peer_s=peer_s)
    own = PartyConfig.model_construct(party="party_a", role="passive", state=store.root, deadlines=deadlines)
    return JobHost(own, nothing, nothing)


def closing(outcome: pb.Outcome.ValueType = pb.FINISHED, turn: pb.Turn = TURN) -> pb.CloseJobRequest:
    return pb.CloseJobRequest(turn=turn, outcome=outcome, reason="told so")


def trained(opened: Checkpoint, rounds: int = 7) -> None:
    opened.keep(TRAINED, {"rounds": rounds, "model": {"coefficients": [0.25]}, "spent": SPENT.to_json()})


async def test_a_job_finishes_without_being_open_when_the_model_lies_ready(store, opened):
    trained(opened)
    reply = await host(store).close(closing(), "party_b")
    assert store.read_json("kept-1", MODEL_FILE) == {"coefficients": [0.25]}
    assert store.read_json("kept-1", STATUS_FILE)["outcome"] == "finished"
    assert (reply.sent_bytes, reply.received_bytes, dict(reply.seconds)) == (10, 20, {"gradient": 0.5})
    assert len(reply.model_digest) == 64
    assert not opened.folder.exists()
    for again in (host(store), host(store)):
        assert await again.close(closing(), "party_b") == reply


@pytest.mark.parametrize("rounds", [6, 8, None])
async def test_a_job_does_not_finish_with_another_model_than_the_one_that_lies_ready(store, opened, rounds):
    if rounds is not None:
        trained(opened, rounds)
    with pytest.raises(UnknownJob):
        await host(store).close(closing(), "party_b")
    assert not store.has("kept-1", MODEL_FILE)
    assert GuestDisk(store).opened("kept-1") is not None


async def test_a_failed_job_leaves_no_model(store, opened):
    trained(opened)
    await host(store).close(closing(pb.FAILED), "party_b")
    assert not store.has("kept-1", MODEL_FILE)
    assert store.read_json("kept-1", STATUS_FILE)["reason"] == "told so"
    with pytest.raises(UnknownJob, match="has ended at party_a"):
        await host(store).close(closing(), "party_b")


async def test_only_those_who_may_close_a_job_learn_of_it(store, opened):
    trained(opened)
    for _ in range(2):  # before the end, and after it
        with pytest.raises(UnknownJob, match="no open job of this id"):
            await host(store).close(closing(), "party_a2")
        other = pb.Turn(job_id="kept-1", job_digest=b"another job", round=7)
        with pytest.raises(RemoteProtocolError, match="digest"):
            await host(store).close(closing(turn=other), "party_b")
        await host(store).close(closing(), "party_b")


async def test_a_job_that_nobody_opens_again_ends_in_time_and_says_who_was_missing(store, opened):
    again = host(store, peer_s=0.05)
    await again.recall()
    async with asyncio.timeout(10):
        while not store.has("kept-1", STATUS_FILE):  # noqa: ASYNC110 - what is awaited is on the disk
            await asyncio.sleep(0.01)
    record = store.read_json("kept-1", STATUS_FILE)
    assert record["outcome"] == "failed"
    assert "party_b did not open the job again within 0.05 s" in record["reason"]
    assert not opened.folder.exists()


def test_attempts_only_grow(store, opened):
    disk = GuestDisk(store)
    for attempt in (0, 1, 2):
        with pytest.raises(Refused, match="does not follow"):
            disk.require_unused(pb.Turn(job_id="kept-1", job_digest=JOB.digest(), attempt=attempt), JOB)
    disk.require_unused(pb.Turn(job_id="kept-1", job_digest=JOB.digest(), attempt=3), JOB)


def test_an_ended_job_is_not_opened_again_and_says_how_it_ended(store, opened):
    GuestDisk(store).end(OpenedJob("kept-1", JOB, 2), _ending())
    with pytest.raises(Refused, match=r"ended here \(failed: party_b was gone\)"):
        GuestDisk(store).require_unused(TURN, JOB)


def _ending():
    return Ending(pb.FAILED, "party_b was gone")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"job": 1, "attempt": 0}', b'{"job": {}}'])
async def test_a_damaged_opening_is_left_alone_and_the_service_starts(store, opened, content):
    (opened.folder / "opened.json").write_bytes(content)
    await host(store).recall()


def test_what_is_left_of_ended_jobs_is_tidied_up_at_the_start(store, opened):
    store.write_json("kept-1", STATUS_FILE, {})
    assert list(GuestDisk(store).unfinished()) == []
    assert not opened.folder.exists()
