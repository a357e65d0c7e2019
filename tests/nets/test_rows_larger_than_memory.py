"""A table larger than memory: a network's rows are made of it all the same, a batch at a time.

A process of its own does it with a smaller file first, which is larger than a batch, too; the peak of its
memory may then grow by little.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

SMALL, ROWS, WIDTH = 3_000, 15_000, 100

CHILD = """
import sys
from pathlib import Path
import numpy as np
from common.data.ids import IdRule
from common.data.preparation import Preparation
from common.data.reading import TableRequest, read_table
from common.data.parquet_source import open_parquet
from common.data.scanned import open_rows
from common.data.source import ParquetFiles
from common.nets.field_kinds import HashedField
from common.nets.field_stream import encode, learn
from common.nets.fields import FieldPlan, FieldSettings
from common.nets.recipe import Recipe
from common.nets.shape import NetSettings
from common.nets.student import Student
from common.nets.student_modules import StudentModules
from common.runtime.net_halves import saved_scores

request = TableRequest("d", IdRule("id"), preparation=Preparation(types={"default": "categorical"}))

def whole(path):
    return read_table(open_parquet(ParquetFiles(path)), request).rows, WIDTH

def streamed(path):
    rows = open_rows(ParquetFiles(path), request)
    plan = learn(rows, np.arange(rows.head.rows), FieldSettings(hash_buckets=4096))
    return encode(rows, plan, np.arange(rows.head.rows), path.parent).indices.shape

def scored(path):
    # By a network of the active party's own, as new rows are scored.
    rows = open_rows(ParquetFiles(path), request)
    plan = FieldPlan(tuple(HashedField(f"c{at}", 64) for at in range(WIDTH)))
    settings, recipe = NetSettings(), Recipe(heads="own")
    modules = StudentModules(plan.layout, settings.shape, settings.shape.width, recipe.heads, 0)
    weights = Student(plan.layout, settings, recipe, [modules]).to_bytes()
    return len(saved_scores(weights, plan, rows)), WIDTH

def peak():
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) >> 10

small, large, work, WIDTH = Path(sys.argv[1]), Path(sys.argv[2]), globals()[sys.argv[3]], int(sys.argv[4])
work(small)
before = peak()
done = work(large)
print(*done, peak() - before)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a smaller and a larger file of texts of which none comes twice."""
    folder, paths = tmp_path_factory.mktemp("texts"), []
    for rows in (SMALL, ROWS):
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


def grown(files: list[Path], work: str) -> int:
    """Return by how many MiB the peak grows from the smaller file to the larger one; all rows are read."""
    command = [sys.executable, "-P", "-c", CHILD, *map(str, files), work, str(WIDTH)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert ended.returncode == 0, ended.stderr
    rows, width, mebibytes = map(int, ended.stdout.split())
    assert (rows, width) == (ROWS, WIDTH)
    return mebibytes


@pytest.mark.parametrize("work", ["streamed", "scored"])
def test_its_rows_are_encoded_and_scored_in_the_memory_of_a_batch(files: list[Path], work: str) -> None:
    assert grown(files, work) < grown(files, "whole") / 3
