"""A party's own disk: complete or absent, private, and one service at a time."""

from __future__ import annotations

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from common.errors import ConfigError, RemoteProtocolError, UnknownJob
from common.runtime.state import JobStore, StateError, write_atomically, write_once


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore(tmp_path / "state")


def test_what_is_written_is_read_again(store: JobStore) -> None:
    store.write_json("job-1", "model.json", {"weights": [0.1, 1e-300], "name": "ä"})
    store.write_bytes("job-1", "report.html", b"<html>")

    assert store.read_json("job-1", "model.json") == {"weights": [0.1, 1e-300], "name": "ä"}
    assert store.read_bytes("job-1", "report.html") == b"<html>"
    assert store.has("job-1", "model.json")
    assert not store.has("job-2", "model.json")


def test_files_and_folders_are_for_their_owner_alone(store: JobStore) -> None:
    path = store.write_json("job-1", "model.json", {})

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_value_that_json_cannot_hold_leaves_the_old_file_as_it_was(store: JobStore) -> None:
    store.write_json("job-1", "model.json", {"round": 1})

    with pytest.raises(ValueError, match="JSON"):
        store.write_json("job-1", "model.json", {"round": float("nan")})

    assert store.read_json("job-1", "model.json") == {"round": 1}


def test_a_write_that_is_killed_half_way_leaves_the_old_file_and_is_not_seen(store: JobStore) -> None:
    store.write_json("job-1", "model.json", {"round": 1})
    killed = f"""
import os
from pathlib import Path
from common.runtime import state
# The moment before the flush to disk is where a crash hurts most.
os.fsync = lambda descriptor: os._exit(9)
state.write_atomically(Path({str(store.root)!r}) / "jobs" / "job-1" / "model.json", b"half")
"""

    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == 9

    assert store.read_json("job-1", "model.json") == {"round": 1}
    assert store.list_jobs() == ("job-1",)


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()

    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "target", b"content")

    assert [entry.name for entry in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("job_id", ["../x", "a/b", "", ".", "A", "x" * 200, "a\x00b", "-a"])
def test_a_job_id_from_a_peer_cannot_leave_the_state_directory(store: JobStore, job_id: str) -> None:
    with pytest.raises(RemoteProtocolError):
        store.write_json(job_id, "model.json", {})


def test_a_file_name_cannot_leave_the_job_folder(store: JobStore) -> None:
    with pytest.raises(StateError):
        store.write_bytes("job-1", "../model.json", b"")


def test_jobs_are_listed_and_stray_files_are_not(store: JobStore) -> None:
    for job_id in ("b", "a"):
        store.write_json(job_id, "status.json", {})
    (store.root / "jobs" / "notes.txt").touch()

    assert set(store.list_jobs()) == {"a", "b"}
    assert JobStore(store.root / "elsewhere").list_jobs() == ()


def test_an_unknown_job_and_a_damaged_file_are_told_apart(store: JobStore) -> None:
    store.write_bytes("job-1", "model.json", b"{")

    with pytest.raises(UnknownJob):
        store.read_json("job-2", "model.json")
    with pytest.raises(StateError, match="damaged"):
        store.read_json("job-1", "model.json")


def test_two_services_cannot_work_on_one_state_directory(store: JobStore) -> None:
    with store.claimed(), pytest.raises(ConfigError, match="another service"), JobStore(store.root).claimed():
        pass

    with store.claimed():
        pass


def test_a_directory_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = JobStore(tmp_path / "file" / "state")

    assert not store.writable()
    with pytest.raises(ConfigError, match="cannot be written"):
        store.open()


def test_of_two_that_write_a_file_for_the_first_time_the_faster_one_is_believed_by_both(
    tmp_path: Path,
) -> None:
    target = tmp_path / "once"
    with ThreadPoolExecutor(8) as threads:
        read = list(threads.map(lambda at: write_once(target, bytes([at])), range(8)))
    assert set(read) == {target.read_bytes()}
    assert [path.name for path in tmp_path.iterdir()] == ["once"]
