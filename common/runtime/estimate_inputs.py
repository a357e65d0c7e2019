"""The shape of a job from its files: what an estimate needs to know about the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from common.crypto.plan import Plan, PlanRequest, prove_ranges
from common.data.reading import Label
from common.data.split import split_rows
from common.errors import ConfigError
from common.rpc.addresses import is_loopback
from common.runtime.compute import available_cores
from common.runtime.config.data import DatasetConfig
from common.runtime.config.job import JobConfig
from common.runtime.config.job_base import JobBase
from common.runtime.config.local import LocalConfig
from common.runtime.config.party import Compute, PartyConfig
from common.runtime.estimate import Place, Shape
from common.runtime.linear_design import LinearDesign, design_with_intercept, open_dataset, plain_design


def shape_of_design(
    job: JobConfig, design: LinearDesign, columns: Mapping[str, int], ids: Mapping[str, int]
) -> Shape:
    """Return the shape of a job whose parties have opened it.

    Args:
        job: The job.
        design: Of this party; the others' features are taken to be as long.
        columns: Of every party that has columns.
        ids: Rows of every party's data set.
    """
    bits = feature_bits(job, design)
    return Shape(
        job=job,
        ids=ids,
        aligned=len(design.matrix),
        train=len(design.train),
        columns=columns,
        feature_bits=dict.fromkeys(columns, bits),
        workers=available_cores(),
    )


def shape_of_party(own: PartyConfig, job: JobConfig, columns: Mapping[str, int]) -> Shape:
    """Return the shape of a job from the active party's file alone.

    Args:
        own: The active party.
        job: The job.
        columns: Of the passive parties, as far as they are known; others are taken to have as many as we.

    Raises:
        ConfigError: The party file has no such data set.
    """
    dataset = own.datasets.get(job.data.dataset)
    if dataset is None:
        raise ConfigError(f"{own.party} has no data set called {job.data.dataset!r}")
    design = _design(dataset, job, Label(job.data.label, dataset.missing_labels))
    known = {own.party: design.columns}
    for party in job.passive:
        known[party] = columns.get(party, design.columns)
    shape = shape_of_design(job, design, known, dict.fromkeys(known, len(design.matrix)))
    return replace(shape, workers=workers_of(own.compute))


def not_estimated(job: JobBase) -> ConfigError:
    """Return the error for a job that is not encrypted regression."""
    return ConfigError(
        f"jobs of algorithm {job.algorithm} are not estimated: that is for encrypted regression",
        advice="`vfl train` shows the time left from its first round on.",
    )


def shape_of_local(config: LocalConfig) -> Shape:
    """Return the shape of a local run from every party's data."""
    job, designs, workers = config.job, {}, 1
    if not isinstance(job, JobConfig):
        raise not_estimated(job)
    for party in config.parties:
        dataset = party.datasets.get(job.data.dataset)
        if dataset is not None:
            label = Label(job.data.label, dataset.missing_labels) if party.party == job.active else None
            designs[party.party] = _design(dataset, job, label)
            workers = max(workers, workers_of(party.compute))
    missing = [party for party in (job.active, *job.passive) if party not in designs]
    if missing:
        raise ConfigError(f"{', '.join(missing)} has no data set called {job.data.dataset!r}")
    fewest = min(designs.values(), key=lambda design: len(design.matrix))
    return Shape(
        job=job,
        ids={party: len(design.matrix) for party, design in designs.items()},
        aligned=len(fewest.matrix),
        train=len(fewest.train),
        columns={party: design.columns for party, design in designs.items()},
        feature_bits={party: feature_bits(job, design) for party, design in designs.items()},
        workers=workers,
    )


def with_rows(shape: Shape, rows: int) -> Shape:
    """Return the shape for another number of aligned rows."""
    train, _ = split_rows(rows, shape.job.data.test_fraction, shape.job.data.split_seed)
    return replace(shape, aligned=rows, train=len(train), ids=dict.fromkeys(shape.ids, rows))


def plan_of(shape: Shape) -> Plan:
    """Return the planner's proof for a shape.

    Raises:
        NumericError: A value could overflow.
    """
    crypto = shape.job.crypto
    return prove_ranges(
        PlanRequest(
            key_bits=crypto.key_bits,
            scale_bits=crypto.precision_bits,
            rows=shape.train,
            columns=max(shape.columns.values()),
            parties=len(shape.columns),
        )
    )


def place_of(own: PartyConfig) -> Place:
    """Return whether the parties share a machine: they do if every address that we dial is loopback."""
    dialled = [address for address in own.peers.values() if address is not None]
    return "one machine" if all(map(is_loopback, dialled)) else "machines of their own"


def feature_bits(job: JobConfig, design: LinearDesign) -> int:
    """Return the length of the largest feature as it is encoded."""
    largest = float(np.abs(design.matrix).max(initial=1e-9))
    return max(1, int(np.ceil(np.log2(largest) + job.crypto.precision_bits)))


def workers_of(compute: Compute) -> int:
    """Return how many processes compute for a party; of a cluster we do not know, so as many as here."""
    if compute.dask is not None or compute.workers == "auto":
        return available_cores()
    return max(1, compute.workers)


def _design(dataset: DatasetConfig, job: JobConfig, label: Label | None) -> LinearDesign:
    table = open_dataset(job.data.dataset, dataset, label).dense()
    if label is None:
        return plain_design(table, job)
    return design_with_intercept(table.without(job.data.label), job)
