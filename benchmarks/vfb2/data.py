"""The experiments' data: real sets from a folder, or the example data of this repository."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.csv
from sklearn.datasets import load_svmlight_file

from common.types import Floats

# A folder with the sets below, as their owners published them; the repository does not contain them.
DATA_VARIABLE = "COLONNADE_DATA"
_EXAMPLES = Path(__file__).parents[2] / "configs" / "data"


@dataclass(frozen=True, slots=True, eq=False)
class Pooled:
    """All parties' rows in one place, as no federation ever has them.

    Attributes:
        name: Of the set.
        features: (n, d), columns that vary.
        labels: (n,), −1 and +1.
    """

    name: str
    features: Floats
    labels: Floats

    def first(self, rows: int | None) -> Pooled:
        """Return a sample of so many rows, the same one every time."""
        if rows is None or rows >= len(self.labels):
            return self
        chosen = np.sort(np.random.default_rng(0).permutation(len(self.labels))[:rows])
        features = self.features[chosen]
        return replace(self, features=features[:, features.std(axis=0) > 1e-9], labels=self.labels[chosen])

    def times(self, copies: int) -> Pooled:
        """Return all rows so many times."""
        features, labels = np.tile(self.features, (copies, 1)), np.tile(self.labels, copies)
        return replace(self, features=features, labels=labels)

    def blocks(self, parties: int) -> list[Floats]:
        """Deal the columns to so many parties, in turn."""
        return [self.features[:, at::parties] for at in range(parties)]


def load(name: str, folder: Path | None) -> Pooled:
    """Read a set by name; without a folder only the example data can be read.

    Raises:
        SystemExit: The set is not there; says what to do.
    """
    place = folder or Path(os.environ[DATA_VARIABLE]) if folder or DATA_VARIABLE in os.environ else None
    if place is None:
        print(f"no --data and no {DATA_VARIABLE}: taking the breast cancer rows of configs/data instead")
        return _breast(_EXAMPLES)
    try:
        return SETS[name](place)
    except FileNotFoundError as failure:
        raise SystemExit(f"{name} is not in {place}: {failure}") from failure


def _credit(folder: Path) -> Pooled:
    place = folder / "fate_default_credit"
    guest = _table(place / "default_credit_hetero_guest.csv")
    host = _table(place / "default_credit_hetero_host.csv")
    labels = np.where(guest.pop("y") > 0, 1.0, -1.0)
    rows = {value: at for at, value in enumerate(host.pop("id").tolist())}
    order = [rows[value] for value in guest.pop("id").tolist()]
    return _pooled("credit", [*guest.values(), *(column[order] for column in host.values())], labels)


def _covtype(folder: Path) -> Pooled:
    names = [str(at) for at in range(55)]
    table = _table(folder / "covtype20k" / "covtype.20k.data", names)
    labels = np.where(table.pop("54") == 2, 1.0, -1.0)
    return _pooled("covtype", list(table.values()), labels)


def _a9a(folder: Path) -> Pooled:
    place, columns, labels = folder / "fedtree_a9a", list[Floats](), np.zeros(0)
    for part in ("a9a_vertical_p0", "a9a_vertical_p1"):
        with _opened(place / part) as stream:
            matrix, labels = load_svmlight_file(stream)
        columns += list(matrix.toarray().T)
    return _pooled("a9a", columns, np.where(labels > 0, 1.0, -1.0))


def _breast(folder: Path) -> Pooled:
    a, b = _table(folder / "breast_a.csv"), _table(folder / "breast_b.csv")
    rows = {value: at for at, value in enumerate(a.pop("id").tolist())}
    ids = b.pop("id").tolist()
    shared = [at for at, value in enumerate(ids) if value in rows]
    order = [rows[ids[at]] for at in shared]
    labels = np.where(b.pop("y")[shared] > 0, 1.0, -1.0)
    return _pooled("breast", [*(c[order] for c in a.values()), *(c[shared] for c in b.values())], labels)


SETS: dict[str, Callable[[Path], Pooled]] = {"credit": _credit, "covtype": _covtype, "a9a": _a9a}


def _pooled(name: str, columns: Sequence[Floats], labels: Floats) -> Pooled:
    features = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    return Pooled(name, features[:, features.std(axis=0) > 1e-9], labels)


def _table(path: Path, names: list[str] | None = None) -> dict[str, Floats]:
    with _opened(path) as stream:
        table = pyarrow.csv.read_csv(stream, pyarrow.csv.ReadOptions(column_names=names))
    return {name: table.column(name).to_numpy() for name in table.column_names}


def _opened(path: Path) -> io.BufferedIOBase:
    packed = path.with_name(f"{path.name}.gz")
    return gzip.open(packed) if packed.exists() else path.open("rb")
