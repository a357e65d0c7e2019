"""What the wiretap counts and shows is what was on the wire, at both ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from common.errors import RemoteProtocolError
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as job
from common.rpc.wiretap import Passage, Wiretap
from tests.rpc.parties import CALL_S, TURN, certified, dialled, serving


async def residuals() -> AsyncIterator[he.EncryptedResiduals]:
    for size in (3, 5):
        yield he.EncryptedResiduals(turn=TURN, ciphertexts=b"c" * size)


async def test_both_ends_count_the_same_bytes_by_job_and_message(tmp_path: Path) -> None:
    at_a, at_b = certified(tmp_path, "party_a", "party_b")
    seen_a: list[Passage] = []
    seen_b: list[Passage] = []
    tap_a, tap_b = Wiretap([seen_a.append]), Wiretap([seen_b.append])
    async with serving(at_a, wiretap=tap_a) as address, dialled(address, at_b, wiretap=tap_b) as stub:
        await stub.OpenJob(job.OpenJobRequest(turn=TURN), timeout=CALL_S)
        async for _ in stub.EncryptScores(he.ScoresRequest(turn=TURN), timeout=CALL_S):
            pass
        await stub.ApplyResiduals(residuals(), timeout=CALL_S)
    mine, theirs = tap_b.totals("job-1"), tap_a.totals("job-1")
    assert (mine.sent_bytes, mine.received_bytes) == (theirs.received_bytes, theirs.sent_bytes)
    assert mine.by_message["EncryptedScores"].received == theirs.by_message["EncryptedScores"].sent == 3
    assert mine.by_message["EncryptedResiduals"].sent_bytes == sum(
        [len(message.SerializeToString()) async for message in residuals()]
    )
    assert [passage.wire for passage in seen_a] == [passage.wire for passage in seen_b]
    assert {passage.peer for passage in seen_a} == {"party_b"}
    assert {passage.peer for passage in seen_b} == {"party_a"}


def test_a_forgotten_job_has_no_traffic() -> None:
    wiretap = Wiretap()
    wiretap.encode(job.Attendance(turn=TURN), "party_a")
    assert wiretap.totals("job-1").sent_bytes > 0
    wiretap.forget("job-1")
    assert wiretap.totals("job-1").sent_bytes == 0


def test_invented_job_ids_do_not_fill_the_memory_or_displace_a_running_job() -> None:
    wiretap = Wiretap()
    for number in range(5_000):
        wiretap.encode(job.Attendance(turn=TURN), "party_a")
        invented = job.Attendance(turn=job.Turn(job_id=f"invented-{number}")).SerializeToString()
        wiretap.decode(job.Attendance.FromString, invented, "party_b")
    assert wiretap.totals("job-1").by_message["Attendance"].sent == 5_000
    assert wiretap.totals("invented-0").received_bytes == 0


def test_a_job_that_is_answered_outlives_any_number_of_invented_ids() -> None:
    wiretap = Wiretap()
    wiretap.encode(job.Attendance(turn=TURN), "party_a")
    for number in range(5_000):
        invented = job.Attendance(turn=job.Turn(job_id=f"invented-{number}")).SerializeToString()
        wiretap.decode(job.Attendance.FromString, invented, "party_b")
    assert wiretap.totals("job-1").by_message["Attendance"].sent == 1


def test_an_invented_job_id_may_be_as_long_as_a_message_and_is_not_kept() -> None:
    wiretap, endless = Wiretap(), "x" * 100_000
    invented = job.Attendance(turn=job.Turn(job_id=endless)).SerializeToString()
    wiretap.decode(job.Attendance.FromString, invented, "party_b")
    assert wiretap.totals(endless).received_bytes == 0


def test_a_tap_that_refuses_stops_the_message() -> None:
    def refuse(passage: Passage) -> None:
        raise OSError(f"the ledger cannot write {passage.message_type}")

    with pytest.raises(OSError, match="ledger"):
        Wiretap([refuse]).encode(job.Attendance(turn=TURN), "party_a")


def test_bytes_that_are_no_message_are_the_peers_fault_and_are_not_shown() -> None:
    with pytest.raises(RemoteProtocolError, match=r"party_a sent 3 bytes") as caught:
        Wiretap().decode(job.Attendance.FromString, b"\xff\xfe\xfd", "party_a")
    assert "fe" not in caught.value.block().replace("before", "")


def test_a_passage_does_not_print_its_payload() -> None:
    passage = Passage("sent", "party_a", "job-1", he.PartialScores(), b"payload")
    assert "payload" not in repr(passage)
