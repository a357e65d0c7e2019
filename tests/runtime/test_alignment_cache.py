"""Alignments that a party keeps."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from common.errors import RemoteProtocolError
from common.runtime.alignment_cache import Alignment, AlignmentCache, AlignmentKey
from common.runtime.compute import InProcessExecutor
from common.runtime.guest.align_calls import AlignmentCalls, OwnIds

KEY = AlignmentKey("b", ("a", "a2"), "patients", "strip=true", "00ff")
ALIGNMENT = Alignment(bytes(range(16)), np.array([4, 0, 2]))


def test_what_was_kept_is_found_again(tmp_path: Path) -> None:
    AlignmentCache(tmp_path).keep(KEY, ALIGNMENT)
    found = AlignmentCache(tmp_path).find(KEY)
    assert found is not None
    assert found.alignment_id == ALIGNMENT.alignment_id
    assert found.rows.tolist() == [4, 0, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"active": "b2"},
        {"passive": ("a2", "a")},
        {"dataset": "others"},
        {"id_rule": "strip=false"},
        {"ids_digest": "00fe"},
    ],
)
def test_a_change_of_anything_makes_a_new_alignment_necessary(tmp_path: Path, change: dict[str, str]) -> None:
    cache = AlignmentCache(tmp_path)
    cache.keep(KEY, ALIGNMENT)
    assert cache.find(replace(KEY, **change)) is None


def test_a_newer_alignment_replaces_the_older_one(tmp_path: Path) -> None:
    cache = AlignmentCache(tmp_path)
    cache.keep(KEY, ALIGNMENT)
    cache.keep(KEY, Alignment(bytes(16), np.array([1])))
    found = cache.find(KEY)
    assert found is not None
    assert found.alignment_id == bytes(16)
    assert len(list((tmp_path / "alignments").iterdir())) == 1


@pytest.mark.parametrize("content", [b"", b"{}\n", b"not json\n\x00", b'{"rows_sha256": "00"}\n12345678'])
def test_a_damaged_file_counts_as_none(tmp_path: Path, content: bytes) -> None:
    cache = AlignmentCache(tmp_path)
    cache.keep(KEY, ALIGNMENT)
    (path,) = (tmp_path / "alignments").iterdir()
    path.write_bytes(content)
    assert cache.find(KEY) is None


def test_a_flipped_bit_in_the_rows_is_noticed(tmp_path: Path) -> None:
    cache = AlignmentCache(tmp_path)
    cache.keep(KEY, ALIGNMENT)
    (path,) = (tmp_path / "alignments").iterdir()
    content = bytearray(path.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)
    assert cache.find(KEY) is None


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    AlignmentCache(tmp_path).keep(KEY, ALIGNMENT)
    (path,) = (tmp_path / "alignments").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("least", "serves"), [(3, True), (4, False)])
async def test_an_alignment_of_fewer_rows_than_a_job_has_to_have_does_not_serve_it(
    tmp_path: Path, least: int, serves: bool
) -> None:
    """Else rows that were aligned for training could be scored although the policy asks for more."""
    cache = AlignmentCache(tmp_path)
    cache.keep(KEY, ALIGNMENT)
    own = OwnIds("a", ("b", "a2"), ("u", "v", "w", "x", "y"), KEY, least)
    calls = AlignmentCalls(own, cache, InProcessExecutor())
    assert await calls.kept(ALIGNMENT.alignment_id) == serves
    if not serves:
        with pytest.raises(RemoteProtocolError, match="not kept here"):
            calls.rows(ALIGNMENT.alignment_id, 3)
