"""Write configs/data/diabetes_a.csv and diabetes_b.csv from scikit-learn's load_diabetes().

A holds age, sex, bmi, bp, s1, s2; B holds s3 … s6 and the label y. Numbers are written so that they read
back exactly. Both files list the same made-up ids in the same order; the ids have leading zeros, which a
program that takes ids for numbers would lose. The result is always the same; `--check` compares instead
of writing.
"""

from __future__ import annotations

import csv
import hashlib
import io
import sys
from pathlib import Path

from sklearn.datasets import load_diabetes

TARGET = Path(__file__).resolve().parent.parent / "configs" / "data"
PASSIVE_COLUMNS = 6  # PROTOCOLS' reference run: A holds columns 0-5


def made_up_ids(count: int) -> list[str]:
    """Return distinct ids in hash order: six digits, the first two or more of them zero."""
    numbers = sorted(
        range(1, 10_000), key=lambda number: hashlib.sha256(f"diabetes|{number}".encode()).digest()
    )
    return [f"{number:06d}" for number in numbers[:count]]


def csv_text(header: list[str], rows: list[list[str]]) -> str:
    """Return a CSV file's content with plain line ends."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([header, *rows])
    return buffer.getvalue()


def files() -> dict[str, str]:
    """Return the content of both files by name."""
    bunch = load_diabetes()
    names = list(bunch.feature_names)
    ids = made_up_ids(len(bunch.target))
    values = [[repr(float(value)) for value in row] for row in bunch.data]
    labels = [repr(float(value)) for value in bunch.target]
    passive = [[one, *row[:PASSIVE_COLUMNS]] for one, row in zip(ids, values, strict=True)]
    active = [
        [one, *row[PASSIVE_COLUMNS:], label] for one, row, label in zip(ids, values, labels, strict=True)
    ]
    return {
        "diabetes_a.csv": csv_text(["id", *names[:PASSIVE_COLUMNS]], passive),
        "diabetes_b.csv": csv_text(["id", *names[PASSIVE_COLUMNS:], "y"], active),
    }


def main() -> int:
    """Write the files, or with --check tell whether they are as they should be."""
    for name, text in files().items():
        path = TARGET / name
        if "--check" in sys.argv[1:]:
            if path.read_text(encoding="utf-8") != text:
                print(f"{path} differs", file=sys.stderr)
                return 1
        else:
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
