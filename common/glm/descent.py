"""Whether training came down as it should: from the objectives, and from what one party sees by itself.

A step along the gradient of one block, all others left alone, lowers the objective by something that its
owner can compute exactly. The lowest objective is at least that much lower, so an objective that no longer
falls and still has this far to go was kept up by its steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.glm.feature_rows import FeatureRows
from common.glm.score_losses import Penalty, ScoreLoss
from common.types import Floats

# Of the step that would be the best one for the squared loss.
_TRIED = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
# Epochs in which less was gained than one full step of one block would bring.
_STILL_FOR = 3
# Of the objective: closer to the lowest nobody asks why.
_CLOSE = 1e-6
# Of all that was gained: less than this is chance.
_RISE = 1e-3


def lower_by(
    features: FeatureRows,
    weights: Floats,
    penalty: Penalty,
    scores: Floats,
    labels: Floats,
    loss: ScoreLoss,
) -> float:
    """Return how much a step along one block's own gradient lowers the objective; 0 if it does not.

    Args:
        features: Of the block's owner, (n, d).
        weights: The block, (d,).
        penalty: Of the block.
        scores: Joint ones, (n,).
        labels: As the loss takes them, (n,).
        loss: Of the job.
    """
    gradient = features.combine_all(loss.thetas(scores, labels)) / len(labels) + penalty.gradient(weights)
    along = features.scores(np.arange(len(labels)), gradient)
    curvature = float(np.mean(along**2))
    if not curvature:
        return 0.0
    best = float(gradient @ gradient) / curvature
    now = loss.mean(scores, labels) + penalty.value(weights)
    steps = (best * part for part in _TRIED)
    ends = [loss.mean(scores - t * along, labels) + penalty.value(weights - t * gradient) for t in steps]
    return max(0.0, now - min(ends))


def trouble(objectives: Sequence[float], lower: float) -> str:
    """Return what is wrong with the objectives of epochs 0, 1, …, in plain words; empty when nothing is.

    Args:
        objectives: At least that of the start.
        lower: By how much the last one could surely be lower.
    """
    best, last = min(objectives), objectives[-1]
    if last >= objectives[0] and len(objectives) > 1:
        return f"the objective did not fall: {objectives[0]:.6g} at the start, {last:.6g} at the end"
    if last - best > _RISE * (objectives[0] - best):
        lowest = f"{best:.6g} after epoch {objectives.index(best)}"
        return f"the objective rose again: {lowest}, {last:.6g} at the end"
    before, recent = objectives[:-_STILL_FOR], objectives[-_STILL_FOR:]
    if len(before) > 1 and lower > max(_CLOSE * abs(last), min(before) - min(recent)):
        return (
            f"the objective has stood still for {_STILL_FOR} epochs at {last:.6g}, which is at least "
            f"{lower:.2g} above its lowest"
        )
    return ""
