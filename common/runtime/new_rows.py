"""New rows for a saved model, read as the party file declares them and as the training prepared them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from common.data.columns import CategoricalColumn
from common.data.label_column import positive_labels
from common.data.matching import extra_columns, request_for_model
from common.data.preparation import Preparation
from common.data.reading import Label, TableRequest, open_source, read_table
from common.data.table import Table
from common.errors import Refused
from common.runtime.config_job_base import JobBase
from common.runtime.config_party import PartyConfig
from common.runtime.saved_model import SavedModel
from common.types import Floats


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


def read_new_rows(own: PartyConfig, job: JobBase, model: SavedModel) -> NewRows:
    """Read the data set that a job names with the columns of a model.

    Raises:
        Refused: This party has no data set of that name.
        DataError: Columns are missing or hold something else than in training, or a cell is wrong.
    """
    dataset = own.datasets.get(job.data.dataset)
    if dataset is None:
        raise Refused(f"{own.party} has no data set called {job.data.dataset!r}")
    source = open_source(dataset.source.declared())
    label = Label(model.label, positive=model.positive) if model.label in source.columns else None
    declared = TableRequest(
        job.data.dataset, dataset.id_rule(), dataset.features, dataset.preparation(), label
    )
    request = request_for_model(model.preprocessing, source, declared)
    if label is not None:
        request = _with_label(request, label)
    table = read_table(source, request)
    notes = (*table.intake.sentences(), *extra_columns(model.preprocessing, source, declared))
    if label is None:
        return NewRows(table, None, notes)
    return NewRows(table.without(label.name), _labels(table, label), notes)


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


def _labels(table: Table, label: Label) -> Floats:
    column = table.cells(label.name)
    if isinstance(column, CategoricalColumn):
        return positive_labels(column, label.positive or "")
    return column.values
