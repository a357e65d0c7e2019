"""Is A worth it? Paired differences over seeds, and what may be said about them. Plain numbers, no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student_t

from common.errors import DataError
from common.nets.scores import Scores

_CONFIDENCE = 0.95
POINTS = 100.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One method at one seed.

    Attributes:
        method: Its name.
        seed: Of split, batches and weights.
        overlap: Share of B's training rows that A has too.
        test: Scores on the test rows.
    """

    method: str
    seed: int
    overlap: float
    test: Scores


@dataclass(frozen=True, slots=True)
class Difference:
    """Of two methods' AUC over the same seeds, in points (0.01).

    Attributes:
        mean: Method minus reference.
        half_width: Of the 95 % interval (paired t); NaN for one seed.
        seeds: Number of pairs.
    """

    mean: float
    half_width: float
    seeds: int

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.seeds > 1 and self.mean - self.half_width > 0

    @property
    def below_zero(self) -> bool:
        """Whether the whole interval is below 0."""
        return self.seeds > 1 and self.mean + self.half_width < 0


def paired(outcomes: Sequence[Outcome], method: str, reference: str, overlap: float) -> Difference:
    """Return the difference of two methods at one overlap, over the seeds that have both.

    Raises:
        DataError: No seed has both.
    """
    aucs: dict[str, dict[int, float]] = {method: {}, reference: {}}
    for one in outcomes:
        if one.method in aucs and one.overlap == overlap and not math.isnan(one.test.auc):
            aucs[one.method][one.seed] = one.test.auc
    seeds = sorted(set(aucs[method]) & set(aucs[reference]))
    if not seeds:
        raise DataError(f"no seed has both {method} and {reference}")
    differences = POINTS * np.array([aucs[method][seed] - aucs[reference][seed] for seed in seeds])
    return Difference(float(differences.mean()), half_width(differences), len(seeds))


def half_width(differences: np.typing.NDArray[np.float64]) -> float:
    """Return half of the width of the 95 % interval of a mean (Student's t); NaN below two values."""
    count = len(differences)
    if count < 2:
        return math.nan
    quantile = float(student_t.ppf(0.5 + _CONFIDENCE / 2, count - 1))
    return quantile * float(differences.std(ddof=1)) / math.sqrt(count)


def mean_auc(outcomes: Sequence[Outcome], method: str, overlap: float) -> float:
    """Return a method's mean test AUC; NaN if it never ran."""
    found = [one.test.auc for one in outcomes if one.method == method and one.overlap == overlap]
    return float(np.mean(found)) if found else math.nan


def verdict(differences: Mapping[str, Difference]) -> list[str]:
    """Return what may be said of JPL, in sentences for B.

    Args:
        differences: Of JPL from `local_twice`, `jpl_without_a` and `fpd_twice`, as far as they ran.
    """
    sentences = []
    if (one := differences.get("local_twice")) is not None:
        sentences.append(_sentence(one, "B's own model (two averaged)", "A is worth it", "A is not worth it"))
    if (one := differences.get("jpl_without_a")) is not None:
        sentences.append(
            _sentence(one, "the same student without A", "the gain comes from A", "A's part does harm")
        )
    if (one := differences.get("fpd_twice")) is not None:
        sentences.append(
            _sentence(
                one, "plain distillation (two averaged)", "JPL is better", "plain distillation is better"
            )
        )
    return sentences


def _sentence(difference: Difference, reference: str, better: str, worse: str) -> str:
    mean = f"{difference.mean:+.2f}".replace("-", "−")
    shown = f"{mean} ± {difference.half_width:.2f} AUC points over {difference.seeds} seeds"
    if difference.seeds < 2:
        return f"JPL − {reference}: {mean} AUC points; one seed shows nothing, run several."
    if difference.above_zero:
        return f"JPL − {reference}: {shown}: {better}."
    if difference.below_zero:
        return f"JPL − {reference}: {shown}: {worse}."
    return f"JPL − {reference}: {shown}: no difference is shown, the interval includes 0."
