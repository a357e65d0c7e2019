"""A collaborator's loop in VFB²: what a dominator may say and when, and what is on the disk by then."""

from __future__ import annotations

import asyncio
import errno
import os
import threading

import numpy as np
import pytest

from common.crypto.entropy import SeededEntropy
from common.errors import JobError, NumericError, RemoteProtocolError
from common.glm.asynchronous import EpochEnd, ScoreRequest, Update
from common.glm.feature_rows import DenseRows
from common.glm.step_size import StepSchedule
from common.rpc.pb import job_pb2
from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.state import StateError
from common.runtime.vfb2.columns import Columns, Labels
from common.runtime.vfb2.engine import Engine
from common.runtime.vfb2.journal import FLUSHED, WRITTEN, Journal
from common.runtime.vfb2.place import Place
from common.runtime.vfb2.records import Kept, kept_from_bytes, kept_to_bytes, record_from, update_record
from common.runtime.vfb2.sums import no_shares, open_shares
from common.runtime.vfb2.wire import Limits, update_message
from party_a.vfb2 import Collaborator
from party_a.vfb2_calls import CollaboratorCalls
from party_b.asynchronous.dominating import DominatorEngine
from party_b.asynchronous.guest import engine_for
from tests.attacks.vfb2_world import job_of

ROWS, BATCH = 12, 3
LIMITS = Limits(ROWS, 4, BATCH, ("party_b", "party_b2"))
JOB = job_of(train={"update": "saga", "batch_size": BATCH, "max_staleness": 3})


def columns():
    rng = np.random.default_rng(2)
    rows = DenseRows(rng.normal(size=(ROWS, 2))), DenseRows(rng.normal(size=(4, 2)))
    return Columns(("x0", "x1"), *rows, np.arange(ROWS), np.arange(4), np.full(2, 0.1), None)


def engine(folder, job=JOB):
    """Return party_a's engine at the start of session 1."""
    place = Place("party_a", job, job_pb2.Turn(job_id="j", job_digest=job.digest()), LIMITS)
    role = Collaborator(columns().collaboration(job), no_shares(job))
    role.collaboration.schedule = StepSchedule(0.1)

    def snapshot():
        kept = Kept(role.state())
        return lambda: kept_to_bytes(kept)

    made = Engine(place, role, Journal(folder), snapshot)
    shares = open_shares(job, "party_a", SeededEntropy(b"a"), None, {})
    made.begin(1, shares, {})
    return made


def frame(**words):
    return pb.FromDominator(words=[pb.DominatorWord(**{name: word}) for name, word in words.items()])


def rows(*numbers):
    return np.array(numbers, "<u4").tobytes()


def thetas(*values):
    return np.array(values, "<f8").tobytes()


def update(number=1, batch=(0, 1, 2), values=(0.1, 0.2, 0.3), epoch=1):
    return frame(update=pb.ThetaUpdate(number=number, epoch=epoch, rows=rows(*batch), thetas=thetas(*values)))


@pytest.fixture
async def started(tmp_path):
    """Return the engine in its first epoch."""
    made = engine(tmp_path)
    made.hear("party_b", frame(epoch_end=pb.EpochEnd(epoch=0)))
    assert made.collaboration.phase == "updating"
    yield made
    await made.close()


def scores(**fields):
    return frame(request=pb.ScoreRequest(**{"number": 1 << 32, "asked": pb.SCORES_NOW, "epoch": 1, **fields}))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (scores(), "0 bytes came as the rows"),
        (scores(rows=b"abc"), "3 bytes came as the rows"),
        (scores(rows=rows(0, 1, 2, 3)), "a batch of at most 3"),
        (scores(rows=rows(0, ROWS)), "not among the 12 training rows"),
        (scores(rows=rows(4, 4)), "names a row twice"),
        (scores(rows=rows(1), asked=9), "no known kind"),
        (scores(rows=rows(1), number=0), "no known kind"),
        (scores(asked=pb.FROZEN_SCORES, begin=10, count=3), "rows 10 … 13 of 12"),
        (scores(asked=pb.FROZEN_SCORES, begin=0, count=0), "rows 0 … 0"),
        (scores(asked=pb.TEST_SCORES, begin=0, count=5), "of 4"),
        (update(batch=(0, 1)), "24 bytes came as the derivatives of 2 rows"),
        (update(batch=(0, 1, ROWS)), "not among the 12 training rows"),
        (update(batch=(5, 5, 6)), "names a row twice"),
        (update(values=(0.1, np.nan, 0.1)), "finite derivatives"),
        (update(values=(0.1, np.inf, 0.1)), "finite derivatives"),
        (update(number=2), "one is missing"),
        (update(epoch=3), "epoch 3 came in epoch 1"),
        (update(epoch=0), "epoch 0 came in epoch 1"),
        (frame(epoch_end=pb.EpochEnd(epoch=7)), "epoch 7 ended in epoch 1"),
        (frame(epoch_end=pb.EpochEnd(epoch=1, cut={"party_a2": 1})), "does not dominate"),
        (frame(reference=pb.ReferencePart(epoch=0, thetas=thetas(0.5))), "epoch 0 came in"),
        (frame(reference=pb.ReferencePart(epoch=0)), "derivatives of 0 rows"),
        (frame(start_over=pb.StartOver(trial=1, step=-1.0)), "not a positive number"),
        (frame(start_over=pb.StartOver(trial=1, step=np.nan)), "not a positive number"),
        (frame(halt=pb.Halt()), "does not dominate"),
        (frame(go=pb.Go(epoch=1)), "does not dominate"),
        (pb.FromDominator(words=[pb.DominatorWord()]), "may not say None"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_its_reason(started, said, words):
    weights = started.collaboration.block.weights.copy()
    with pytest.raises(RemoteProtocolError, match=words.replace("(", r"\(")):
        started.hear("party_b", said)
    assert np.array_equal(started.collaboration.block.weights, weights)


@pytest.mark.parametrize("word", ["epoch_end", "reference", "finish", "start_over", "halt", "go", "verdict"])
async def test_only_the_keeper_speaks_of_epochs(started, word):
    kind = getattr(
        pb, {"verdict": "EpochVerdict", "reference": "ReferencePart"}.get(word, word.title().replace("_", ""))
    )
    with pytest.raises(RemoteProtocolError, match="party_b2 may not say"):
        started.hear("party_b2", frame(**{word: kind()}))


async def test_nothing_is_scored_before_training_and_no_test_row_before_its_end(tmp_path, started):
    with pytest.raises(RemoteProtocolError, match="test rows were asked for in phase 'updating'"):
        started.role.contribute(_request(started, "test_scores"))
    fresh = engine(tmp_path)
    with pytest.raises(RemoteProtocolError, match="phase 'start'"):
        fresh.hear("party_b", scores(rows=rows(1)))
    await fresh.close()


def _request(made, asked):
    return ScoreRequest("party_b", (1 << 32) + 5, asked, made.collaboration.epoch - 1, np.arange(2))


async def test_an_update_that_comes_again_changes_nothing(started):
    started.hear("party_b", update())
    weights = started.collaboration.block.weights.copy()
    started.hear("party_b", update())
    assert np.array_equal(started.collaboration.block.weights, weights)
    assert started.collaboration.progress.counts == {"party_b": 1, "party_b2": 0}


async def test_a_session_number_never_comes_again(started):
    for number in (0, 1):
        with pytest.raises(RemoteProtocolError, match="cannot follow session 1"):
            started.begin(number, no_shares(JOB), {})


async def test_sums_of_strangers_and_for_the_wrong_root_are_refused(started):
    for root, child, words in (
        ("party_a", "party_a2", "has it otherwise"),
        ("party_b", "party_b2", "not a child"),
    ):
        passed = pb.PassedSum(root=root, sum=pb.PartialSum(number=1 << 32, tree=1, words=bytes(8)))
        first = pb.PassedSums(turn=started.place.turn_in(1), sums=[passed])
        with pytest.raises(RemoteProtocolError, match=words):
            await started.take_sums(child, first, _nothing())


async def _nothing():
    return
    yield


async def test_updates_that_break_the_numbers_name_the_feature(started):
    huge = update(values=(1e308, 1e308, 1e308))
    with pytest.raises(NumericError, match="feature 'x"):
        started.hear("party_b", huge)


async def test_what_was_applied_is_on_the_disk_before_it_is_called_durable(tmp_path, started):
    for number in (1, 2, 3):
        started.hear("party_b", update(number, batch=(number, number + 1, number + 2)))
    await started.settle()
    assert started._durable["party_b"] == 3
    recovered = Journal(tmp_path).recover()
    found = [record_from(content, LIMITS) for content in recovered.records]
    assert [record.number for record in found if isinstance(record, Update)] == [1, 2, 3]
    assert kept_from_bytes(recovered.checkpoint, LIMITS).state.epoch == 1


async def test_a_restarted_engine_stands_where_the_killed_one_stood(tmp_path, started):
    for number in (1, 2):
        started.hear("party_b", update(number, batch=(number, number + 4, number + 8)))
    started.hear("party_b", frame(epoch_end=pb.EpochEnd(epoch=1, cut={"party_b": 2, "party_b2": 0})))
    started.hear("party_b", update(3, epoch=2))
    await started.settle()  # what follows is what a process that was killed here had left

    class Calls(CollaboratorCalls):
        def __init__(self):
            self.folder = tmp_path

    again = Calls().make_engine(started.place, columns(), None)
    before, now = started.collaboration, again.collaboration
    assert np.array_equal(now.block.weights, before.block.weights)
    assert (now.epoch, now.phase, now.progress.digest) == (before.epoch, before.phase, before.progress.digest)
    for name, table in before.block.rule.tables().items():
        assert np.array_equal(now.block.rule.tables()[name], table)
    await again.close()


async def test_a_torn_last_record_is_dropped_and_a_damaged_checkpoint_is_told(tmp_path):
    journal = Journal(tmp_path)
    journal.append(b"whole")
    journal.append(b"torn by a crash")
    await journal.close()
    path = next(tmp_path.glob("segment.*"))
    path.write_bytes(path.read_bytes()[:-3])
    assert Journal(tmp_path).recover().records == [b"whole"]
    with pytest.raises(Exception, match="damaged"):
        kept_from_bytes(b"PK\x03\x04 nothing", LIMITS)


@pytest.mark.parametrize("step", ["barrier", "checkpoint"])
async def test_records_are_on_the_disk_in_the_order_in_which_they_came(tmp_path, step):
    """The first is not being written yet when the step takes it along and another one comes."""
    journal = Journal(tmp_path)
    journal.append(b"first")
    if step == "barrier":
        journal.barrier(lambda: None)
    else:
        journal.checkpoint(_not_to_be_had, lambda: None)
    journal.append(b"second")
    await journal.flushed()
    assert Journal(tmp_path).recover().records == [b"first", b"second"]


def _not_to_be_had():
    # As if the process was killed before the checkpoint was whole.
    raise OSError("killed")


async def test_records_that_wait_are_flushed_together(tmp_path):
    journal, flushes = Journal(tmp_path), []
    journal.listen(lambda: flushes.append(journal.durable))
    for number in range(50):
        journal.append(bytes([number]))
    await journal.flushed()
    assert flushes[-1] == 50
    assert len(flushes) < 5
    await journal.close()


@pytest.mark.parametrize(("pace", "flushes_before"), [(WRITTEN, 0), (FLUSHED, 1)])
async def test_others_may_know_of_a_record_when_it_survives_what_the_job_says(
    tmp_path, monkeypatch, pace, flushes_before
):
    flushed = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    journal, safe = Journal(tmp_path, pace), asyncio.get_running_loop().create_future()

    def look():
        if journal.safe and not safe.done():
            safe.set_result((len(flushed), Journal(tmp_path).recover().records))

    journal.listen(look)
    journal.append(b"an update")
    journal.write()
    look()
    # A process that is killed at this moment has left the record, whether or not the disk was flushed.
    assert await safe == (flushes_before, [b"an update"])
    await journal.flushed()
    assert (journal.durable, len(flushed)) == (1, 1)
    await journal.close()


async def test_nobody_may_know_of_a_record_before_the_checkpoint_that_it_follows_is_there(tmp_path):
    journal, looked_at = Journal(tmp_path, WRITTEN), threading.Event()
    journal.append(b"before")

    def content():
        looked_at.wait()
        return b"state"

    journal.checkpoint(content, lambda: None)
    journal.append(b"after")
    journal.write()
    killed_now = Journal(tmp_path).recover()
    safe_now = journal.safe
    looked_at.set()
    assert safe_now == 1
    assert (killed_now.checkpoint, killed_now.records) == (None, [b"before"])
    await journal.flushed()
    later = Journal(tmp_path).recover()
    assert journal.safe == 2
    assert (later.checkpoint, later.records) == (b"state", [b"after"])
    await journal.close()


async def test_nothing_is_safe_after_a_record_that_the_disk_did_not_take(tmp_path, monkeypatch):
    journal, said = Journal(tmp_path, WRITTEN), []
    journal.listen(lambda: said.append(journal.failed))
    monkeypatch.setattr(os, "write", _full)
    journal.append(b"lost")
    journal.write()
    monkeypatch.undo()
    journal.append(b"after it")
    journal.write()
    journal.checkpoint(lambda: b"state", lambda: said.append("called durable"))
    await journal.flushed()
    assert (journal.safe, journal.durable) == (0, 0)
    assert all(isinstance(one, StateError) for one in said)
    await journal.close()


def _full(descriptor, data):
    raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_dominator_that_a_power_cut_robbed_of_sent_updates_fails_before_it_begins_others(tmp_path):
    place = Place("party_b", JOB, job_pb2.Turn(job_id="j", job_digest=JOB.digest()), LIMITS)
    made = engine_for(DominatorEngine, place, columns(), Labels(np.ones(ROWS), None), tmp_path)
    word = pb.CollaboratorWord(applied=pb.Applied(applied=3, durable=2))
    made.hear_back("party_a", pb.ToDominator(words=[word]))
    error = made.failed.result()
    assert isinstance(error, JobError)
    assert "party_a has applied 3 updates of party_b, whose journal ends at 0" in str(error)
    await made.close()


async def test_threads_apply_what_comes_and_the_end_of_an_epoch_waits_for_them(tmp_path):
    made = engine(
        tmp_path, job_of(train={"update": "saga", "batch_size": BATCH, "max_staleness": 8, "threads": 3})
    )
    made.hear("party_b", frame(epoch_end=pb.EpochEnd(epoch=0)))
    for number in range(1, 9):
        made.hear("party_b", update(number, batch=(number, number + 1, number + 2)))
    made.hear("party_b", frame(epoch_end=pb.EpochEnd(epoch=1, cut={"party_b": 8})))
    async with asyncio.timeout(20):
        while made.collaboration.epoch < 2:  # noqa: ASYNC110 - what is awaited is in other threads
            await asyncio.sleep(0.001)
    assert made.collaboration.progress.equals({"party_b": 8})
    await made.close()


def test_an_update_survives_its_spelling():
    update = Update("party_b", 4, 2, 9, np.array([3, 1, 7]), np.array([0.5, -1e-300, 2.0]))
    message = update_message(update)
    assert len(message.rows) == 12
    assert EpochEnd(0, {}) == EpochEnd(0, {})
    again = record_from(update_record(update), LIMITS)
    assert (again.dominator, again.number, again.epoch, again.request) == ("party_b", 4, 2, 9)
    assert np.array_equal(again.rows, update.rows)
    assert np.array_equal(again.thetas, update.thetas)
