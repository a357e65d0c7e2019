"""Write the two parties' files of an example from a published data set, shuffled and partly overlapping.

    make_example_data.py breast HOST.csv GUEST.csv
    make_example_data.py motor  HOST.csv GUEST.csv
    make_example_data.py credit HOST.csv GUEST.csv
    make_example_data.py clients HOST.csv GUEST.csv    # 2,000 rows of the same files

The published files are the vertical splits of FATE's examples (examples/data in FederatedAI/FATE:
`breast_hetero_*.csv`, `motor_hetero_*.csv`, `default_credit_hetero_*.csv`, also gzipped): the host becomes A,
the guest, who has the label, becomes B. One row in ten is left to A alone, one in ten to B alone, so that
80 % of all rows are common; each file has an order of its own; ids get leading zeros. The result is always
the same. `--to DIR` writes elsewhere than into configs/data.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "configs" / "data"
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Example:
    """How ids look, how many rows are taken, and what belongs to one party alone."""

    id_digits: int
    rows: int | None = None
    one_sided_parts: int = 10  # one row in so many is A's alone, and one in so many is B's alone


EXAMPLES = {"breast": Example(6), "motor": Example(5), "credit": Example(8), "clients": Example(8, 2000)}


def read(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Return the header without the id, and id -> cells, all as text."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if content[:2] == _GZIP else content).decode()
    header, *rows = csv.reader(io.StringIO(text))
    return header[1:], {row[0]: row[1:] for row in rows}


def ordered(name: str, what: str, ids: Sequence[str]) -> list[str]:
    """Return ids in an order that has nothing to do with them, the same every time."""
    return sorted(ids, key=lambda one: hashlib.sha256(f"{name}|{what}|{one}".encode()).digest())


def files(name: str, host: Path, guest: Path) -> dict[str, str]:
    """Return the content of both files by name."""
    example = EXAMPLES[name]
    tables = {"a": read(host), "b": read(guest)}
    ids = ordered(name, "who", sorted(set(tables["a"][1]) & set(tables["b"][1])))[: example.rows]
    alone = len(ids) // example.one_sided_parts
    held = {"a": ids[: len(ids) - alone], "b": ids[alone:]}
    written = {}
    for party, (header, rows) in tables.items():
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["id", *header])
        for one in ordered(name, party, held[party]):
            writer.writerow([one.zfill(example.id_digits), *rows[one]])
        written[f"{name}_{party}.csv"] = text.getvalue()
    return written


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=EXAMPLES)
    parser.add_argument("host", type=Path)
    parser.add_argument("guest", type=Path)
    parser.add_argument("--to", type=Path, default=TARGET)
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    for file, text in files(arguments.name, arguments.host, arguments.guest).items():
        (arguments.to / file).write_text(text, encoding="utf-8")
        print(arguments.to / file)


if __name__ == "__main__":
    main()
