"""A table whose cells would fill memory many times over: a network's rows are made of it all the same.

A process of its own does it with a small file first, so that all libraries are there; then its memory may
grow by less than the large file's size.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

ROWS, WIDTH = 8_000, 100
MAY_GROW_MB = 100

CHILD = """
import resource, sys
from pathlib import Path
import numpy as np
from common.data.ids import IdRule
from common.data.preparation import Preparation
from common.data.reading import TableRequest, read_table
from common.data.parquet_source import open_parquet
from common.data.scanned import open_rows
from common.data.source import ParquetFiles
from common.nets.field_stream import encode, learn
from common.nets.fields import FieldSettings

request = TableRequest("d", IdRule("id"), preparation=Preparation(types={"default": "categorical"}))

def whole(path):
    return read_table(open_parquet(ParquetFiles(path)), request).rows, WIDTH

def streamed(path):
    rows = open_rows(ParquetFiles(path), request)
    plan = learn(rows, np.arange(rows.head.rows), FieldSettings(hash_buckets=4096))
    return encode(rows, plan, np.arange(rows.head.rows), path.parent).indices.shape

def virtual():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

small, large, work = Path(sys.argv[1]), Path(sys.argv[2]), globals()[sys.argv[3]]
WIDTH, may_grow = int(sys.argv[4]), int(sys.argv[5])
work(small)
resource.setrlimit(resource.RLIMIT_AS, (virtual() + may_grow, resource.RLIM_INFINITY))
try:
    print(*work(large))
except MemoryError:
    print("no memory")
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a small and a large file of texts of which none comes twice."""
    folder, paths = tmp_path_factory.mktemp("texts"), []
    for rows in (200, ROWS):
        generator = np.random.default_rng(rows)
        columns = {"id": [f"r{at}" for at in range(rows)]}
        for at in range(WIDTH):
            cells = generator.integers(0, 256, (rows, 40), dtype=np.uint8)
            columns[f"c{at}"] = [one.tobytes().hex() for one in cells]
        paths.append(folder / f"{rows}.parquet")
        pyarrow.parquet.write_table(
            pa.table(columns), paths[-1], row_group_size=2_000, use_dictionary=False, compression="none"
        )
    return paths


def done(files: list[Path], work: str) -> str:
    limits = [str(WIDTH), str(MAY_GROW_MB << 20)]
    command = [sys.executable, "-P", "-c", CHILD, *map(str, files), work, *limits]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    short = "MemoryError" in ended.stderr or "bad_alloc" in ended.stderr
    assert ended.returncode == 0 or short, ended.stderr
    return ended.stdout.strip() or "no memory"


def test_its_rows_are_encoded_within_a_part_of_its_size(files: list[Path]) -> None:
    assert files[1].stat().st_size > 60 << 20
    assert done(files, "streamed") == f"{ROWS} {WIDTH}"


def test_read_whole_they_need_more(files: list[Path]) -> None:
    """Without this, the limit of the test above might limit nothing."""
    assert done(files, "whole") == "no memory"
