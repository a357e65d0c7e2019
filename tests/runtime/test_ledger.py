"""What a party sent is in its ledger before it leaves, and no edit of the ledger stays unseen."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from common.errors import ConfigError
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as job
from common.rpc.wiretap import Wiretap
from common.runtime.ledger.book import Ledger
from common.runtime.ledger.entry import LedgerError
from common.runtime.ledger.reading import entries_in, verify
from common.runtime.ledger.reconcile import Reconciled, reconcile

TURN = job.Turn(job_id="job-1", job_digest=b"d" * 32, round=4, attempt=1)
SECRET = 0.123456789


def scores(*values: float) -> he.PartialScores:
    return he.PartialScores(turn=TURN, scores=values)


def wiretap(state: Path, party: str = "party_a", segment_bytes: int = 1 << 20) -> Wiretap:
    return Wiretap([Ledger(state, party, segment_bytes).record])


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a state with five entries."""
    tap = wiretap(tmp_path)
    for number in range(5):
        tap.encode(scores(SECRET, float(number)), "party_b")
    return tmp_path


def lines(state: Path) -> list[bytes]:
    return (state / "ledger" / "000001.jsonl").read_bytes().splitlines(keepends=True)


def rewritten(state: Path, kept: list[bytes]) -> None:
    (state / "ledger" / "000001.jsonl").write_bytes(b"".join(kept))


def test_an_entry_says_what_left_to_whom_and_how_it_was_protected(tmp_path: Path) -> None:
    tap = wiretap(tmp_path)
    key = he.PublicKey(turn=TURN, modulus=b"n" * 32, noise_generator=b"h" * 64)
    tap.decode(he.PublicKey.FromString, key.SerializeToString(), "coordinator")
    wire = tap.encode(he.EncryptedResiduals(turn=TURN, ciphertexts=bytes(3 * 64)), "party_b")
    first, second = entries_in(tmp_path)
    assert (first.direction, first.peer, first.kind) == ("received", "coordinator", "public_key")
    assert (second.direction, second.peer, second.job, second.round) == ("sent", "party_b", "job-1", 4)
    assert (second.protection, second.key, second.attempt) == ("ciphertext", "coordinator", 1)
    assert (second.rows, second.values, second.wire_bytes) == (3, 3, len(wire))
    assert verify(tmp_path).problems == ()


def test_no_value_is_in_the_ledger(state: Path) -> None:
    content = b"".join(lines(state))
    wire = scores(SECRET).SerializeToString()[-8:]
    assert wire not in content
    assert str(SECRET).encode() not in content


def test_what_a_party_tells_its_own_operator_has_not_left_it(tmp_path: Path) -> None:
    wiretap(tmp_path).encode(scores(1.0), "party_a")
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger"):
        verify(tmp_path)


def test_any_changed_byte_is_found(state: Path) -> None:
    for name in ("000001.jsonl", "head"):
        path = state / "ledger" / name
        content = path.read_bytes()
        for at in range(len(content)):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            assert verify(state).problems, f"{name}, byte {at}"
        path.write_bytes(content)
    assert verify(state).problems == ()


EDITS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "the first is gone": lambda kept: kept[1:],
    "one is gone": lambda kept: [*kept[:2], *kept[3:]],
    "the last is gone": lambda kept: kept[:-1],
    "the last end is gone": lambda kept: [*kept[:-1], kept[-1][:-1]],
    "two are swapped": lambda kept: [kept[0], kept[2], kept[1], *kept[3:]],
    "one comes twice": lambda kept: [*kept[:2], kept[1], *kept[2:]],
    "the last comes twice": lambda kept: [*kept, kept[-1]],
    "a line is put in": lambda kept: [*kept[:2], b"{}\n", *kept[2:]],
    "an empty line is put in": lambda kept: [*kept[:2], b"\n", *kept[2:]],
    "all are gone": lambda kept: [],
}


@pytest.mark.parametrize("edit", EDITS)
def test_any_other_edit_is_found(state: Path, edit: str) -> None:
    rewritten(state, EDITS[edit](lines(state)))
    assert verify(state).problems


def test_a_lost_head_is_found(state: Path) -> None:
    (state / "ledger" / "head").unlink()
    assert verify(state).problems


def test_a_gap_stays_visible_when_the_party_has_gone_on(state: Path) -> None:
    rewritten(state, lines(state)[:3])
    wiretap(state).encode(scores(9.0), "party_b")
    (problem,) = verify(state).problems
    assert "entries 4 to 5 are missing" in problem


def test_an_entry_that_was_cut_in_its_middle_by_a_crash_never_left_and_goes(state: Path) -> None:
    with (state / "ledger" / "000001.jsonl").open("ab") as handle:
        handle.write(lines(state)[-1][:100])
    wiretap(state).encode(scores(9.0), "party_b")
    assert verify(state).problems == ()
    assert [entry.number for entry in entries_in(state)] == [1, 2, 3, 4, 5, 6]


def test_an_entry_that_the_head_was_not_told_of_before_a_crash_counts(state: Path) -> None:
    head = state / "ledger" / "head"
    before = head.read_bytes()
    wiretap(state).encode(scores(9.0), "party_b")
    head.write_bytes(before)
    wiretap(state).encode(scores(10.0), "party_b")
    assert verify(state).problems == ()
    assert verify(state).entries == 7


def test_service_and_operator_write_one_chain(tmp_path: Path) -> None:
    taps = [wiretap(tmp_path, segment_bytes=2_000), wiretap(tmp_path, segment_bytes=2_000)]
    for number in range(20):
        taps[number % 3 % 2].encode(scores(float(number)), "party_b")
    assert verify(tmp_path).problems == ()
    assert verify(tmp_path).entries == 20
    assert len(list((tmp_path / "ledger").glob("*.jsonl"))) > 3


@pytest.mark.parametrize("garbled", [b"", b"\xff" * 128, b"0" * 128, b"1 2 3".ljust(128)])
def test_a_head_that_was_garbled_meanwhile_stops_what_leaves_until_a_service_begins_anew(
    tmp_path: Path, garbled: bytes
) -> None:
    tap, head = wiretap(tmp_path), tmp_path / "ledger" / "head"
    tap.encode(scores(1.0), "party_b")
    head.write_bytes(garbled)
    for _ in range(2):
        with pytest.raises(LedgerError, match="the head of party_a's ledger was changed"):
            tap.encode(scores(2.0), "party_b")
    assert verify(tmp_path).problems

    wiretap(tmp_path).encode(scores(3.0), "party_b")
    assert (verify(tmp_path).entries, verify(tmp_path).problems) == (2, ())


FULL = """
import resource, signal, sys
from pathlib import Path
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.wiretap import Wiretap
from common.runtime.ledger.book import Ledger
from common.runtime.ledger.entry import LedgerError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, resource.RLIM_INFINITY))
tap, sent = Wiretap([Ledger(Path(sys.argv[1]), "party_a").record]), 0
try:
    while True:
        tap.encode(he.PartialScores(scores=[1.0]), "party_b")
        sent += 1
except LedgerError as exc:
    print(sent, exc)
"""


def test_what_the_disk_does_not_take_does_not_leave(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", FULL, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True)
    sent, _, told = ended.stdout.partition(" ")
    assert told.startswith("party_a cannot write its ledger")
    assert verify(tmp_path).problems == ()
    assert verify(tmp_path).entries == int(sent) > 1


@pytest.fixture
def both(tmp_path: Path) -> tuple[Path, Path]:
    """Return the states of two parties after three messages one way and one the other way."""
    at_a, at_b = wiretap(tmp_path / "a"), wiretap(tmp_path / "b", "party_b")
    for number in range(3):
        wire = at_a.encode(scores(float(number)), "party_b")
        at_b.decode(he.PartialScores.FromString, wire, "party_a")
    wire = at_b.encode(job.Attendance(turn=TURN), "party_a")
    at_a.decode(job.Attendance.FromString, wire, "party_b")
    # Somebody else's messages are no business of these two.
    at_b.encode(job.Attendance(turn=TURN), "coordinator")
    return tmp_path / "a", tmp_path / "b"


def test_what_one_sent_the_other_received(both: tuple[Path, Path]) -> None:
    assert reconcile(*both) == Reconciled("party_a", "party_b", 4, ())
    assert reconcile(*both, job="job-1").equal == 4


def test_a_message_that_came_otherwise_than_it_left_is_named_on_both_sides(both: tuple[Path, Path]) -> None:
    at_a, at_b = (wiretap(state, party) for state, party in zip(both, ("party_a", "party_b"), strict=True))
    at_a.encode(scores(1.0, 2.0), "party_b")
    at_b.decode(he.PartialScores.FromString, scores(1.0, 2.5).SerializeToString(), "party_a")
    told = [difference.sentence() for difference in reconcile(*both).differences]
    assert told == [
        "PartialScores, job job-1: sent by party_a, not received by party_b",
        "PartialScores, job job-1: received by party_b, not sent by party_a",
    ]


def test_a_sender_who_takes_an_entry_out_and_makes_the_chain_anew_is_found(both: tuple[Path, Path]) -> None:
    forged = wiretap(both[0].parent / "forged")
    for number in range(2):
        forged.encode(scores(float(number)), "party_b")
    forged.decode(job.Attendance.FromString, job.Attendance(turn=TURN).SerializeToString(), "party_b")
    state = both[0].parent / "forged"
    assert verify(state).problems == ()
    (difference,) = reconcile(both[1], state).differences
    assert difference.sentence() == "PartialScores, job job-1: received by party_b, not sent by party_a"


def test_entries_that_were_handed_over_as_a_file_are_compared_too(both: tuple[Path, Path]) -> None:
    handed = both[1].parent / "for_a.jsonl"
    handed.write_bytes(b"".join(entry.line() for entry in entries_in(both[1]) if entry.peer == "party_a"))
    assert reconcile(both[0], handed) == Reconciled("party_a", "party_b", 4, ())


def test_two_ledgers_of_one_party_are_refused(both: tuple[Path, Path]) -> None:
    shutil.copytree(both[0], both[0].parent / "copy")
    with pytest.raises(ConfigError, match="both ledgers are party_a's"):
        reconcile(both[0], both[0].parent / "copy")
