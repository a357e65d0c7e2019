"""What peers of a party in VFB² cannot do to it: fill its memory, fail it by being late, fool its disk."""

from __future__ import annotations

import asyncio
import os

import pytest

from common.errors import RemoteProtocolError, UnknownJob
from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.vfb2.journal import Journal
from common.runtime.vfb2.links import is_absence
from common.runtime.vfb2.sums import window_of
from tests.runtime.test_vfb2_engine import JOB, ROWS, frame, rows, scores, started

__all__ = ["started"]  # a fixture
SESSION = 1
FIRST = SESSION << 32


def in_session(word, turn):
    word.turn.CopyFrom(turn)
    return word


async def test_a_dominator_that_asks_and_reads_nothing_is_refused_before_it_fills_our_memory(started):
    turn, taken = started.place.turn_in(SESSION), 0

    async def more():
        nonlocal taken
        for number in range(1, 20 * window_of(JOB)):
            taken += 1
            yield in_session(scores(number=FIRST + number, rows=rows(number % ROWS)), turn)
            await asyncio.sleep(0)

    stream = started.attend("party_b", in_session(scores(number=FIRST, rows=rows(0)), turn), more())
    await anext(stream)  # and nothing more is read
    waiting = started._streams["party_b"]
    async with asyncio.timeout(20):
        while started._streams and taken < 20 * window_of(JOB) - 1 and not waiting._closed:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert len(waiting) <= 4 * window_of(JOB)
    with pytest.raises(RemoteProtocolError, match="party_b does not read what it is sent"):
        async for _ in stream:
            pass


async def test_sums_over_many_rows_are_not_begun_without_end(started):
    for number in range(4 * window_of(JOB)):
        started.hear("party_b", scores(number=FIRST + number, asked=pb.FROZEN_SCORES, epoch=0, count=ROWS))
    with pytest.raises(RemoteProtocolError, match="more sums at a time"):
        started.hear("party_b", scores(number=FIRST, asked=pb.FROZEN_SCORES, epoch=0, count=ROWS))


async def test_a_stream_of_a_session_that_is_over_counts_as_absence_and_fails_nobody(started, monkeypatch):
    started.begin(2, started.role._shares, {})
    with pytest.raises(UnknownJob, match="session 1 is over") as over:
        await anext(started.attend("party_b", frame_of(started, 1), nothing()))
    monkeypatch.setattr("common.runtime.vfb2.update_loop._SESSION_WITHIN_S", 0.0)
    with pytest.raises(UnknownJob, match="session 3 was never begun") as early:
        await anext(started.attend("party_b", frame_of(started, 3), nothing()))
    assert is_absence(over.value)
    assert is_absence(early.value)


def frame_of(made, session):
    return in_session(frame(), made.place.turn_in(session))


async def nothing():
    return
    yield


async def test_a_record_of_which_the_disk_took_a_part_is_not_called_durable(tmp_path, monkeypatch):
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: whole(descriptor, bytes(data)[:5]))
    journal = Journal(tmp_path)
    journal.append(b"an update that others will have applied")
    await journal.flushed()
    assert journal.durable == 1
    await journal.close()
    assert Journal(tmp_path).recover().records == [b"an update that others will have applied"]
