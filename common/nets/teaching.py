"""Stage 1 in one process: the split network trained on overlapped rows, then asked for what it knows.

Between services the conductors do this; here it serves comparisons and benchmarks, by the same halves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from common.nets.batches import epoch_batches
from common.nets.pooled import Half
from common.nets.protect import NO_PROTECTION, OPEN_RELEASE, Protection, Release, Singles
from common.nets.recipe import Patience
from common.nets.scores import EarlyStopping, Scores, scores_of
from common.nets.split import ActiveNetwork, PassiveNetwork
from common.types import Floats, Ints

GradientWatcher = Callable[[Ints, Mapping[str, Singles]], None]


@dataclass(frozen=True, slots=True, eq=False)
class SharedRows:
    """The overlapped rows of all parties, in the common order.

    Attributes:
        active: B's k rows.
        passive: The other parties' k rows.
        labels: (k,) of 0 and 1.
        training: Positions to train on.
        validation: Positions that decide when to stop.
    """

    active: Half
    passive: Mapping[str, Half]
    labels: Floats
    training: Ints
    validation: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Guarding:
    """What the parties do to what they send.

    Attributes:
        protection: Of B's gradients.
        release: Of the passive parties' representations.
        watch: Called with every batch's rows and the gradients that leave B.
    """

    protection: Protection = NO_PROTECTION
    release: Release = OPEN_RELEASE
    watch: GradientWatcher | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Taught:
    """A frozen teacher.

    Attributes:
        representations: (k, w) of all passive parties side by side, in the order of their names.
        logits: (k,) of the whole network.
        validation: Scores of the best epoch.
        epochs: Epochs that were trained.
    """

    representations: Singles = field(repr=False)
    logits: Floats = field(repr=False)
    validation: Scores
    epochs: int


def teach(rows: SharedRows, patience: Patience, seed: int, guarding: Guarding | None = None) -> Taught:
    """Train a split network until its validation score no longer grows; the best epoch teaches.

    Args:
        rows: Of all parties; their settings have the seeds of their weights.
        patience: How long.
        seed: Of the batches.
        guarding: What is done to what leaves a party; None for nothing.

    Raises:
        DataError: A label is neither 0 nor 1.
        NumericError: The loss is not finite.
    """
    guard = guarding or Guarding()
    active = ActiveNetwork(
        rows.active.rows,
        rows.labels,
        rows.active.layout,
        rows.active.settings,
        tuple(rows.passive),
        guard.protection,
    )
    passive = {
        name: PassiveNetwork(half.rows, half.layout, half.settings, guard.release)
        for name, half in rows.passive.items()
    }
    stopping, best = EarlyStopping(patience), _kept(active, passive)
    reached: Scores | None = None
    while not stopping.ended:
        for chosen in epoch_batches(len(rows.training), patience.batch_size, seed, stopping.epoch):
            _step(rows.training[chosen], active, passive, guard.watch)
        scores = scores_of(rows.labels[rows.validation], _logits(rows.validation, active, passive))
        if stopping.better(scores) or reached is None:
            reached, best = scores, _kept(active, passive)
    active = ActiveNetwork.from_bytes(best[0], rows.active.rows, rows.labels, guard.protection)
    passive = {
        name: PassiveNetwork.from_bytes(best[1][name], half.rows, guard.release)
        for name, half in rows.passive.items()
    }
    everybody = np.arange(len(rows.labels))
    parts = [passive[name].represent(everybody) for name in sorted(passive)]
    logits = _logits(everybody, active, passive)
    return Taught(np.concatenate(parts, axis=1), logits, reached or Scores(*[np.nan] * 3), stopping.epoch)


def _step(
    chosen: Ints, active: ActiveNetwork, passive: Mapping[str, PassiveNetwork], watch: GradientWatcher | None
) -> None:
    step = active.step(chosen, {name: one.forward(chosen) for name, one in passive.items()})
    for name, one in passive.items():
        one.backward(chosen, step.gradients[name])
    if watch is not None:
        watch(chosen, step.gradients)


def _logits(rows: Ints, active: ActiveNetwork, passive: Mapping[str, PassiveNetwork]) -> Floats:
    return active.logits(rows, {name: one.represent(rows) for name, one in passive.items()})


def _kept(active: ActiveNetwork, passive: Mapping[str, PassiveNetwork]) -> tuple[bytes, Mapping[str, bytes]]:
    return active.weights_to_bytes(), {name: one.weights_to_bytes() for name, one in passive.items()}
