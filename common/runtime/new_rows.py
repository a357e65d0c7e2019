"""New rows for a saved model, read as the party file declares them and as the training prepared them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from common.data.columns import CategoricalColumn, Column
from common.data.label_column import positive_labels
from common.data.libsvm_source import LibsvmSource
from common.data.matching import ModelColumns, extra_columns, request_for_model
from common.data.preparation import Preparation
from common.data.reading import AnySource, Label, TableRequest, open_source, read_table
from common.data.scanned import Rows, held, open_rows
from common.data.table import Table
from common.data.wording import counted
from common.errors import DataError, Refused
from common.runtime.config.job_base import JobBase
from common.runtime.config.party import PartyConfig
from common.runtime.memory import give_back
from common.types import Floats


class Trained(Protocol):
    """What has to be known of a model to read rows for it."""

    @property
    def columns(self) -> ModelColumns:
        """The columns that it was trained on."""

    @property
    def keeps_sparse(self) -> bool:
        """Whether it takes sparse columns as they are."""

    @property
    def label(self) -> str | None:
        """The column that is predicted; only at the active party."""

    @property
    def positive(self) -> str | None:
        """Text of the label that counts as +1, where it is a text."""


@dataclass(frozen=True, slots=True, eq=False)
class NewRows:
    """A party's own new rows; may be seen by it alone.

    Attributes:
        table: The columns of the model, matched by name.
        labels: (n,), NaN for a row without a label; None where the data set has no label column. Of a label
            that is a text: 1 for the positive one and 0 for any other.
        notes: What reading did, with counts.
    """

    table: Table
    labels: Floats | None = field(repr=False)
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class NewFields:
    """A party's own new rows for a network, which takes them a batch at a time; may be seen by it alone.

    Attributes:
        head: Their ids and labels; of a file, no column.
        rows: The columns of the model, wherever they are.
    """

    head: NewRows
    rows: Rows = field(repr=False)


def read_new_rows(own: PartyConfig, job: JobBase, model: Trained) -> NewRows:
    """Read the data set that a job names with the columns of a model.

    Raises:
        Refused: This party has no data set of that name.
        DataError: Columns are missing or hold something else than in training, or a cell is wrong.
    """
    source, declared, label = _declared(own, job, model)
    if isinstance(source, LibsvmSource):
        return _sparse_rows(source, declared, model, label)
    request = request_for_model(model.columns, source, declared)
    if label is not None:
        request = _with_label(request, label)
    table = read_table(source, request)
    notes = (*table.intake.sentences(), *extra_columns(model.columns, source, declared))
    if label is None:
        return NewRows(table, None, notes)
    return NewRows(table.without(label.name), _labels(table.cells(label.name), label), notes)


def open_new_rows(own: PartyConfig, job: JobBase, model: Trained) -> NewFields:
    """Check every cell that `read_new_rows` would read, and leave the columns of files where they are.

    Raises:
        Refused, DataError: As `read_new_rows`.
    """
    source, declared, label = _declared(own, job, model)
    if isinstance(source, LibsvmSource):
        read = _sparse_rows(source, declared, model, label)
        return NewFields(read, held(read.table))
    request = request_for_model(model.columns, source, declared)
    if label is not None:
        request = _with_label(request, label)
    rows = open_rows(own.datasets[job.data.dataset].source.declared(), request)
    labels = None if label is None else _labels_in(rows, label)
    notes = (*rows.head.intake.sentences(), *extra_columns(model.columns, source, declared))
    give_back()
    return NewFields(NewRows(rows.head, labels, notes), rows)


def _declared(own: PartyConfig, job: JobBase, model: Trained) -> tuple[AnySource, TableRequest, Label | None]:
    """Return a job's data set, what its party declares about it, and the label if it is there."""
    dataset = own.datasets.get(job.data.dataset)
    if dataset is None:
        raise Refused(f"{own.party} has no data set called {job.data.dataset!r}")
    source, name = open_source(dataset.source.declared()), model.label
    label = Label(name, positive=model.positive) if name is not None and name in source.columns else None
    rule, preparation = dataset.id_rule(), dataset.preparation()
    return source, TableRequest(job.data.dataset, rule, dataset.features, preparation, label), label


def _sparse_rows(
    source: LibsvmSource, declared: TableRequest, model: Trained, label: Label | None
) -> NewRows:
    """Read rows whose columns have numbers for names; a column of the model that they lack is zero."""
    wanted = None if label is None else replace(label, missing="keep")
    table = read_table(source, replace(declared, features="all", label=wanted))
    labels = None if wanted is None else _labels(table.cells(wanted.name), wanted)
    table = table.select(())
    notes = table.intake.sentences()
    if not model.keeps_sparse and table.sparse is not None:
        # Trained by an algorithm that takes every number of a column.
        numbers = np.array(sorted(map(_number, model.columns.names)), dtype=np.int64)
        new = len(np.setdiff1d(table.sparse.numbers, numbers))
        if new:
            notes.append(f"{counted(new, 'sparse column')} of {table.width:,} not in the model")
        table = replace(table, sparse=table.sparse.select(numbers)).dense()
    return NewRows(table, labels, tuple(notes))


def _number(name: str) -> int:
    if not name.isdecimal():
        raise DataError(
            f"the model has a column {name!r}, and the columns of LIBSVM rows are numbers",
            advice="bring new rows in the kind of file that training had",
        )
    return int(name)


def _with_label(request: TableRequest, label: Label) -> TableRequest:
    """Ask for the label as one more column, so that a row without one is kept and scored all the same."""
    old = request.preparation
    preparation: Preparation = replace(
        old,
        types={**old.types, label.name: label.kind},
        missing={**old.missing, label.name: "zero" if label.kind == "numeric" else "category"},
    )
    names = () if request.features == "all" else request.features
    return replace(request, features=(*names, label.name), preparation=preparation)


def _labels_in(rows: Rows, label: Label) -> Floats:
    parts = [_labels(cells.columns[label.name], label) for cells in rows.batches([label.name])]
    return np.concatenate(parts)


def _labels(column: Column, label: Label) -> Floats:
    if isinstance(column, CategoricalColumn):
        return positive_labels(column, label.positive or "")
    return column.values
