"""Files far larger than the columns that are asked for: reading them must not need memory for the rest.

A process of its own reads a small file first, so that all libraries are there; then its memory may grow by a
part of the large file's size only.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

ROWS, WIDTH = 12_000, 500
MAY_GROW_MB = 40
SIZE_MB = 50

CHILD = """
import json, resource, sys
from pathlib import Path
from common.runtime.config.data import DatasetConfig
from common.runtime.linear_design import open_dataset

def virtual():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

small, large, may_grow = json.loads(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
types = {"c3": "categorical", "default": "numeric"}
dataset = lambda source, features: DatasetConfig.model_validate_json(
    json.dumps({"source": source, "features": features, "types": types}))
features = json.loads(sys.argv[4])
open_dataset("small", dataset(small, features))
resource.setrlimit(resource.RLIMIT_AS, (virtual() + may_grow, resource.RLIM_INFINITY))
try:
    table = open_dataset("large", dataset(large, features))
except MemoryError:
    print("no memory")
else:
    print(table.rows, len(table.columns), len(table.cells("c3").categories))
"""


def write(folder: Path, kind: str, rows: int) -> dict[str, object]:
    """Write a table of some columns and many others; return its source as a party file declares it."""
    generator = np.random.default_rng(rows)
    cells = np.char.mod("%.6f", generator.normal(size=(rows, WIDTH)))
    cells[:, 3] = np.array(["Basel", "Bern", "Genf"])[generator.integers(0, 3, rows)]
    names = [f"c{at}" for at in range(WIDTH)]
    path = folder / f"{kind}-{rows}"
    lines = "\n".join([",".join(["id", *names]), *(f"r{at},{','.join(row)}" for at, row in enumerate(cells))])
    if kind == "csv":
        path.write_text(lines + "\n")
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(lines.encode(), 1))
    elif kind == "parquet":
        columns = {"id": [f"r{at}" for at in range(rows)], **dict(zip(names, cells.T.tolist(), strict=True))}
        pyarrow.parquet.write_table(pa.table(columns), path, row_group_size=2_000, use_dictionary=False)
    else:
        with sqlite3.connect(path) as connection:
            connection.execute(f"CREATE TABLE t (id TEXT, {', '.join(f'{name} TEXT' for name in names)})")
            insert = f"INSERT INTO t VALUES ({','.join('?' * (WIDTH + 1))})"  # noqa: S608 - our own text
            connection.executemany(insert, ([f"r{at}", *row] for at, row in enumerate(cells.tolist())))
        return {"sql": {"url": f"sqlite:///{path}", "query": "SELECT * FROM t ORDER BY rowid"}}
    return {"parquet" if kind == "parquet" else "csv": str(path)}


def read(folder: Path, kind: str, features: list[str] | str) -> str:
    sources = [json.dumps(write(folder, kind, rows)) for rows in (200, ROWS)]
    command = [sys.executable, "-P", "-c", CHILD, *sources, str(MAY_GROW_MB << 20), json.dumps(features)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    assert done.returncode == 0 or "MemoryError" in done.stderr or "bad_alloc" in done.stderr, done.stderr
    return done.stdout.strip() or "no memory"


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "sql"])
def test_three_columns_of_a_wide_source_are_read_in_less_memory_than_it_has(
    tmp_path: Path, kind: str
) -> None:
    assert read(tmp_path, kind, ["c1", "c3", "c499"]) == f"{ROWS} 3 3"


def test_all_columns_of_it_need_more(tmp_path: Path) -> None:
    """Without this, the limit of the test above might limit nothing."""
    assert read(tmp_path, "csv", "all") == "no memory"
    assert (tmp_path / f"csv-{ROWS}").stat().st_size > SIZE_MB << 20 > MAY_GROW_MB << 20
