"""Standardisation: each party scales its own columns, on its own training rows, and keeps the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from sklearn.preprocessing import StandardScaler

from common.errors import DataError, NumericError
from common.types import Floats

_KIND = "standardize"


@dataclass(frozen=True, slots=True)
class Standardizer:
    """(x − mean) / scale for each feature, with the standard deviation of ddof 0.

    Attributes:
        features: d names, in the order of the columns.
        mean: By feature; may be seen by the owner of the columns alone.
        scale: By feature, above 0; 1 for a constant column.
        constant: Features without variation on the training rows, up to rounding.
    """

    features: tuple[str, ...]
    mean: tuple[float, ...] = field(repr=False)
    scale: tuple[float, ...] = field(repr=False)
    constant: tuple[str, ...] = ()

    @classmethod
    def fit(cls, values: Floats, features: Sequence[str]) -> Standardizer:
        """Learn mean and scale from the training rows, (n, d).

        Raises:
            NumericError: A column is so large that its variance overflows; names the feature.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            scaler = StandardScaler().fit(values)
        for name, mean, variance in zip(features, scaler.mean_, scaler.var_, strict=True):
            if not (math.isfinite(mean) and math.isfinite(variance)):
                raise NumericError(
                    f"feature {name!r} is too large to be standardised",
                    advice="give it in a larger unit",
                )
        # scikit-learn has the rule for "constant up to rounding" and then sets the scale to exactly 1.
        spread = np.sqrt(scaler.var_)
        constant = tuple(
            name
            for name, scale, sigma in zip(features, scaler.scale_, spread, strict=True)
            if scale == 1.0 and sigma != 1.0
        )
        return cls(tuple(features), _floats(scaler.mean_), _floats(scaler.scale_), constant)

    @classmethod
    def identity(cls, features: Sequence[str]) -> Standardizer:
        """Return the standardizer of a job that does not standardise: it changes nothing."""
        names = tuple(features)
        return cls(names, (0.0,) * len(names), (1.0,) * len(names))

    def apply(self, values: Floats) -> Floats:
        """Return the scaled columns, (n, d), in the order of `features`."""
        if values.shape[1] != len(self.features):
            raise DataError(f"{values.shape[1]} columns found where training had {len(self.features)}")
        scaled: Floats = (values - np.asarray(self.mean)) / np.asarray(self.scale)
        return scaled

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values; numbers survive exactly."""
        return {
            "kind": _KIND,
            "features": list(self.features),
            "mean": list(self.mean),
            "scale": list(self.scale),
            "constant": list(self.constant),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Standardizer:
        """Return what `to_json` wrote.

        Raises:
            DataError: The document is something else.
        """
        try:
            if document["kind"] != _KIND:
                raise DataError("this is not a saved standardisation")
            features, constant = _texts(document["features"]), _texts(document["constant"])
            mean, scale = _floats(document["mean"]), _floats(document["scale"])
        except (KeyError, TypeError, ValueError) as failure:
            raise DataError("a saved standardisation is damaged") from failure
        if not len(features) == len(mean) == len(scale) or min(scale, default=1.0) <= 0.0:
            raise DataError("a saved standardisation is damaged")
        return cls(features, mean, scale, constant)


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError("a list of texts was expected")
    return tuple(str(value) for value in values)


def _floats(values: object) -> tuple[float, ...]:
    numbers = tuple(float(value) for value in np.asarray(values, dtype=np.float64))
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a number is not finite")
    return numbers
