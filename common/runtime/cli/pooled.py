"""The same descent by one computer that holds every column: what a lossless federation reproduces."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from common.data.ids import in_id_order
from common.data.table import Table
from common.errors import ConfigError
from common.glm.metrics import regression_metrics
from common.glm.ridge import pooled_gradient_descent
from common.runtime.config.job import JobConfig
from common.runtime.config.local import LocalConfig, LocalParty
from common.runtime.config.party import PartyConfig
from common.runtime.linear_design import (
    LinearDesign,
    design_with_intercept,
    loss_of,
    plain_design,
    read_dataset,
    step_size,
)
from common.types import Floats


@dataclass(frozen=True, slots=True)
class Pooled:
    """A pooled run and how far the federation is from it.

    Attributes:
        losses: Mean form, one a round.
        metrics: On the test rows, or on the training rows when there are no test rows.
        loss_difference: Largest absolute one over all rounds for which the federation knows its loss.
        weight_difference: Largest absolute one over all weights, the intercept among them.
    """

    losses: tuple[float, ...] = field(repr=False)
    metrics: Mapping[str, float]
    loss_difference: float
    weight_difference: float


def pooled_run(config: LocalConfig, report: Mapping[str, Any]) -> Pooled:
    """Repeat a finished local run on pooled data, in this process.

    Raises:
        ConfigError: The report lacks a party's part of the model.
    """
    job = config.job
    if not isinstance(job, JobConfig):
        raise ConfigError(f"the algorithm {job.algorithm} has no pooled run to be compared with")
    designs, labels = _designs(config, job)
    X = np.column_stack([design.matrix for design in designs.values()])
    active = designs[job.active]
    train = active.train
    descent = pooled_gradient_descent(
        X[train],
        labels[train],
        np.concatenate([design.penalties for design in designs.values()]),
        step_size(job, {name: design.curvature(loss_of(job)) for name, design in designs.items()}),
        int(report["rounds"]),
        active.schedule.rows_of,
    )
    measured = active.test if len(active.test) else train
    weights = np.concatenate([_weights(report, name, design) for name, design in designs.items()])
    return Pooled(
        losses=descent.losses,
        metrics=regression_metrics(labels[measured], X[measured] @ descent.weights),
        loss_difference=_largest_difference(report["loss_history"], descent.losses),
        weight_difference=float(np.abs(weights - descent.weights).max()),
    )


def _designs(config: LocalConfig, job: JobConfig) -> tuple[dict[str, LinearDesign], Floats]:
    """Return every party's columns, the active party's last, and the labels."""
    parties = {party.party: _as_party(party) for party in config.parties}
    if not isinstance(job, JobConfig):
        raise ConfigError("only encrypted regression is compared with pooled training here")
    tables = {name: read_dataset(parties[name], job) for name in (*job.passive, job.active)}
    common = set[str].intersection(*(set(table.ids) for table in tables.values()))
    tables = {name: _aligned(table, common) for name, table in tables.items()}
    designs = {name: plain_design(tables[name], job) for name in job.passive}
    table = tables[job.active]
    designs[job.active] = design_with_intercept(table.without(job.data.label), job)
    return designs, table.column(job.data.label)


def _aligned(table: Table, common: Collection[str]) -> Table:
    """Return the rows that the federation trained on, in the order that it gave them."""
    rows = np.flatnonzero([one in common for one in table.ids])
    return table.take(in_id_order(table.ids, rows))


def _as_party(party: LocalParty) -> PartyConfig:
    """Return a local party as `read_dataset` wants it; nothing of it is ever bound or dialled."""
    return PartyConfig.model_construct(
        party=party.party, role=party.role, datasets=party.datasets, policy=party.policy
    )


def _weights(report: Mapping[str, Any], party: str, design: LinearDesign) -> Floats:
    part = report["model"].get(party)
    if part is None:
        raise ConfigError(f"the report lacks the model part of {party}")
    weights = [*part["coefficients"]]
    if len(weights) < design.columns:
        weights.append(part["intercept"])
    return np.asarray(weights, dtype=np.float64)


def _largest_difference(federated: list[float | None], pooled: tuple[float, ...]) -> float:
    known = [abs(own - other) for own, other in zip(federated, pooled, strict=False) if own is not None]
    return max(known, default=float("nan"))
