"""Makes the halves of a split network, or takes them up again; torch, an extra, is asked for only here.

A service without torch runs every other algorithm, so that nothing may import torch before a job needs it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from common.data.scanned import Rows
from common.errors import ConfigError, Refused
from common.nets.available import require_torch
from common.nets.encoded import EncodedRows
from common.nets.fields import FieldPlan
from common.nets.protect import LabelDP, Marvell, MaxNorm, NoProtection, Protection, Release, Singles
from common.nets.shape import NetSettings
from common.runtime.config.networks import NetJob, Run
from common.runtime.net_design import NetDesign, network_seed, optimisation_of, shape_of
from common.types import Floats

if TYPE_CHECKING:
    from common.nets.split import ActiveNetwork, PassiveNetwork


@dataclass(frozen=True, slots=True, eq=False)
class Half:
    """What makes one party's half in one run.

    Attributes:
        job: The job.
        run: The run.
        design: The party's rows.
        secret: The party's own random bytes.
    """

    job: NetJob
    run: Run
    design: NetDesign
    secret: bytes = field(repr=False)

    def settings(self, rows: int) -> NetSettings:
        """Return shape, optimiser and seed; `rows` are trained on in an epoch."""
        seed = network_seed(self.secret, self.run)
        return NetSettings(shape_of(self.job), optimisation_of(self.job, rows), seed)

    def noise_secret(self) -> int:
        """Return what this party's noise is drawn from in this run."""
        about = f"|{self.job.digest().hex()}|{self.run.number}".encode()
        word = hashlib.sha256(b"colonnade noise v1|" + self.secret + about).digest()[:16]
        return int.from_bytes(word, "big")


def new_bottom(half: Half, rows: int) -> PassiveNetwork:
    """Return a passive party's new network.

    Raises:
        ConfigError: torch is not installed.
    """
    make_ready()
    from common.nets.split import PassiveNetwork

    return PassiveNetwork(half.design.rows, half.design.plan.layout, half.settings(rows), release_of(half))


def restored_bottom(half: Half, kept: bytes) -> PassiveNetwork:
    """Return a passive party's network as it was kept; raises as `new_bottom`."""
    make_ready()
    from common.nets.split import PassiveNetwork

    return PassiveNetwork.from_bytes(kept, half.design.rows, release_of(half))


def new_top(half: Half, labels: Floats, rows: int) -> ActiveNetwork:
    """Return the active party's new half; labels 0 and 1, (n,). Raises as `new_bottom`."""
    make_ready()
    from common.nets.split import ActiveNetwork

    return ActiveNetwork(
        half.design.rows,
        labels,
        half.design.plan.layout,
        half.settings(rows),
        half.job.passive,
        protection_of(half),
    )


def restored_top(half: Half, labels: Floats, kept: bytes) -> ActiveNetwork:
    """Return the active party's half as it was kept; raises as `new_bottom`."""
    make_ready()
    from common.nets.split import ActiveNetwork

    return ActiveNetwork.from_bytes(kept, half.design.rows, labels, protection_of(half))


def saved_bottom(weights: bytes, rows: EncodedRows, release: Release) -> Singles:
    """Return the representations of new rows by a passive party's saved network, (n, width)."""
    make_ready()
    from common.nets.split import PassiveNetwork

    return PassiveNetwork.from_bytes(weights, rows, release).represent(np.arange(len(rows)))


def saved_scores(weights: bytes, plan: FieldPlan, rows: Rows) -> Floats:
    """Return the scores of new rows by a saved model of the active party's alone, (n,).

    Raises:
        DataError: The source is broken, or is not what it was.
    """
    make_ready()
    from common.nets.student import Student

    student = Student.from_bytes(weights)
    scores = np.empty(rows.head.rows)
    for cells in rows.batches(plan.names):
        scores[cells.rows] = student.logits(plan.encode_columns(cells.columns, len(cells.rows)))
    return scores


def saved_top(weights: bytes, rows: EncodedRows, representations: Mapping[str, Singles]) -> Floats:
    """Return the scores of new rows by the active party's saved half, (n,)."""
    make_ready()
    from common.nets.split import ActiveNetwork

    network = ActiveNetwork.from_bytes(weights, rows, np.full(len(rows), np.nan))
    return network.logits(np.arange(len(rows)), representations)


def make_ready() -> None:
    """Make torch ready in this process, which takes seconds the first time.

    Batches are small: handing them to several threads costs more than it brings, and two parties on one
    machine would spin against each other.
    """
    require_torch()
    from common.nets.threads import use_threads

    use_threads(1)


def require_networks(party: str) -> None:
    """Say no to a job with networks where they cannot be trained.

    Raises:
        Refused: torch is not installed at this party.
    """
    try:
        require_torch()
    except ConfigError as exc:
        raise Refused(f"{party}: {exc.what}", advice=exc.advice) from exc


def release_of(half: Half) -> Release:
    """Return what a passive party does to its representations."""
    privacy = half.job.privacy
    return Release(privacy.clip, privacy.noise, half.noise_secret())


def protection_of(half: Half) -> Protection:
    """Return what the active party does to labels and gradients."""
    privacy, secret = half.job.privacy, half.noise_secret()
    if privacy.protect == "max_norm":
        return MaxNorm(secret)
    if privacy.protect == "marvell":
        return Marvell(privacy.power, secret)
    if privacy.protect == "label_dp" and privacy.epsilon is not None:
        return LabelDP(privacy.epsilon, secret)
    return NoProtection()
