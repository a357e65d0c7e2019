"""The sets by name: which columns are A's and which are B's, read from the files of the data folder.

Rows come as texts and become columns as declared here. `NA`, `?` or nothing in a numeric column, and a `?`
among categories, is a missing value.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from common.data.columns import CategoricalColumn, Column, NumericColumn
from common.data.table import Table
from common.errors import ConfigError
from common.types import Floats, Ints

_MISSING_NUMBERS = frozenset({"", "?", "NA"})
_MISSING_CATEGORY = "?"
_ADULT = (
    "age workclass fnlwgt education edunum marital occupation relationship race sex capgain caploss hours "
    "country y"
)
_ADULT_NUMBERS = frozenset({"age", "fnlwgt", "edunum", "capgain", "caploss", "hours"})
_COVTYPE = (
    "Elevation",
    "Aspect",
    "Slope",
    "HDHydro",
    "VDHydro",
    "HDRoad",
    "Hill9",
    "Hill12",
    "Hill15",
    "HDFire",
)


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """A set as it was read.

    Attributes:
        columns: Texts by name, `y` not among them.
        labels: (n,) of 0 and 1.
        a: Names of A's columns.
        b: Names of B's columns.
        numbers: Names of those that are numbers.
    """

    columns: Mapping[str, Sequence[str]]
    labels: Floats
    a: Sequence[str]
    b: Sequence[str]
    numbers: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A set before it is split.

    Attributes:
        name: Its name, with `:swap` when A and B change columns.
        table_a: A's columns of all n rows.
        table_b: B's columns of the same rows.
        labels: (n,).
    """

    name: str
    table_a: Table
    table_b: Table
    labels: Floats


def load(folder: Path, name: str) -> Source:
    """Read a set from the data folder.

    Raises:
        ConfigError: There is no such set, or its files are not there.
    """
    base, _, variant = name.partition(":")
    if base not in SETS or variant not in ("", "swap"):
        raise ConfigError(f"there is no set {name}", advice=f"sets: {', '.join(SETS)}, each also NAME:swap")
    found = SETS[base](folder)
    first, second = (found.b, found.a) if variant == "swap" else (found.a, found.b)
    return Source(name, _table(found, first), _table(found, second), found.labels)


def adult(folder: Path) -> Texts:
    """Return the census rows: B has age, work, education and hours, A the rest."""
    with _opened(folder, "adult/adult.ssv") as file:
        rows = [line.split() for line in file if line.strip()]
    b = ["age", "workclass", "education", "edunum", "occupation", "hours"]
    return _of(_columns(_ADULT.split(), rows), b, _ADULT_NUMBERS, ">50K")


def airlines44k(folder: Path) -> Texts:
    """Return flights: B knows date, carrier and flight, A the airports, hours, aircraft and distance."""
    with _opened(folder, "airlines44k/allyears2k_headers.csv", "latin-1") as file:
        names, *rows = csv.reader(file)
    read = dict(_columns(names, rows))
    for hour, clock in (("DepHour", "CRSDepTime"), ("ArrHour", "CRSArrTime")):
        read[hour] = [str(int(one) // 100) for one in read[clock]]
    b = ["Year", "Month", "DayofMonth", "DayOfWeek", "UniqueCarrier", "FlightNum"]
    a = ["Origin", "Dest", "DepHour", "ArrHour", "TailNum", "Distance"]
    chosen = {name: read[name] for name in (*b, *a)} | {"y": read["IsArrDelayed"]}
    return _of(chosen, b, frozenset({"Distance"}), "YES")


def covtype20k(folder: Path) -> Texts:
    """Return forest cover, class 2 or not: B has the measurements, A wilderness and soil."""
    with _opened(folder, "covtype20k/covtype.20k.data") as file:
        rows = list(csv.reader(file))
    areas = [*(f"Wild{at}" for at in range(4)), *(f"Soil{at}" for at in range(40))]
    return _of(_columns([*_COVTYPE, *areas, "y"], rows), _COVTYPE, frozenset((*_COVTYPE, *areas)), "2")


def fate_default_credit(folder: Path) -> Texts:
    """Return credit clients, numbers only: B has the guest's columns, A the host's."""
    parts = []
    for side in ("guest", "host"):
        with _opened(folder, f"fate_default_credit/default_credit_hetero_{side}.csv") as file:
            names, *rows = csv.reader(file)
        parts.append({row[0]: dict(zip(names[1:], row[1:], strict=True)) for row in rows})
    guest, host = parts
    both = [one for one in guest if one in host]
    own = [name for name in guest[both[0]] if name != "y"]
    columns = {f"g_{name}": [guest[one][name] for one in both] for name in own}
    columns |= {f"h_{name}": [host[one][name] for one in both] for name in host[both[0]]}
    labels = {"y": [guest[one]["y"] for one in both]}
    return _of(columns | labels, [f"g_{name}" for name in own], frozenset(columns), "1")


def planted_ctr(folder: Path) -> Texts:
    """Return invented clicks on which A must pay off; nothing is read, the folder does not matter.

    Four hidden traits decide the chance of a click. A has them, B only noisy copies under four aliases each,
    and clicks are noisy: the true chance itself ranks them with an AUC of about 0.7. The draws are those of
    planted_ctr.py beside the data.
    """
    rows, traits, levels, noisy = 20_000, 4, 8, 32
    draws = np.random.default_rng(11)
    hidden = draws.integers(0, levels, (rows, traits))
    weights = draws.normal(0, 0.5, (traits, levels))
    weights -= weights.mean(axis=1, keepdims=True)
    logits = -0.9 + sum(weights[at][hidden[:, at]] for at in range(traits))
    labels = (draws.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.float64)
    columns = {f"a{at + 1}": _planted_texts(at, hidden[:, at] + 1) for at in range(traits)}
    columns["a5"] = _planted_texts(90, draws.integers(1, 20, rows))
    columns["a6"] = _planted_texts(91, draws.integers(1, 200, rows))
    a = list(columns)
    for at in range(noisy):
        noise = draws.integers(0, levels, rows)
        kept = np.where(draws.random(rows) < 0.35, hidden[:, at % traits], noise)
        columns[f"b{at + 1}"] = _planted_texts(100 + at, kept * 4 + draws.integers(0, 4, rows) + 1)
    columns["b_id"] = _planted_texts(200, draws.integers(1, 500, rows))
    return Texts(columns, labels, a, [name for name in columns if name not in a], frozenset())


SETS: Mapping[str, Callable[[Path], Texts]] = {
    one.__name__: one for one in (planted_ctr, fate_default_credit, adult, airlines44k, covtype20k)
}


def _planted_texts(field: int, values: Ints) -> list[str]:
    return [f"{(int(value) * 2654435761 + field * 40503) % 2**32:08x}" for value in values]


@contextmanager
def _opened(folder: Path, name: str, encoding: str = "utf-8") -> Iterator[TextIO]:
    """Open a text file, or the compressed one of its name.

    Raises:
        ConfigError: Neither is there.
    """
    path, packed = folder / name, folder / f"{name}.gz"
    if path.is_file():
        with path.open(encoding=encoding, newline="") as file:
            yield file
    elif packed.is_file():
        with gzip.open(packed, "rt", encoding=encoding, newline="") as file:
            yield file
    else:
        raise ConfigError(f"{folder} has no {name}", advice="give the folder of the data with --data")


def _columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Mapping[str, Sequence[str]]:
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def _of(
    columns: Mapping[str, Sequence[str]], b: Sequence[str], numbers: frozenset[str], positive: str
) -> Texts:
    labels = np.array([one.strip(".") == positive for one in columns["y"]], dtype=np.float64)
    features = {name: texts for name, texts in columns.items() if name != "y"}
    return Texts(features, labels, [name for name in features if name not in b], b, numbers)


def _table(found: Texts, names: Sequence[str]) -> Table:
    columns = [_column(found.columns[name], name in found.numbers) for name in names]
    ids = tuple(str(at) for at in range(len(found.labels)))
    return Table("set", "set", ids, tuple(names), tuple(columns))


def _column(texts: Sequence[str], numeric: bool) -> Column:
    if numeric:
        values = [np.nan if one in _MISSING_NUMBERS else float(one) for one in texts]
        return NumericColumn(np.array(values, dtype=np.float64))
    names = sorted(set(texts) - {_MISSING_CATEGORY})
    places = {text: at for at, text in enumerate(names)} | {_MISSING_CATEGORY: -1}
    return CategoricalColumn(tuple(names), np.array([places[one] for one in texts], dtype=np.int32))
