"""What hides labels in the gradients that leave B, and rows in the representations that leave A.

Noise is a function of a secret of the party that adds it, the step, the receiver and what is hidden: what is
sent again carries the same noise, and nothing but the secret has to be kept. Two different values never share
their noise, else their difference would be in the clear: a step that is repeated after a loss may not be the
same step, for its other half comes from a peer. A secret comes from the operating system; the seed of a job,
which the peers know, would let them take the noise away again.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from common.errors import ConfigError
from common.nets.marvell import noise_powers
from common.types import Floats, Ints

Singles: TypeAlias = npt.NDArray[np.float32]

# Noise of stored representations is drawn for so many rows at once, so that any row can be asked for again.
_NOISE_BLOCK = 1024


class Protection(Protocol):
    """What B does to labels and gradients so that A learns less about the labels."""

    def labels(self, labels: Floats) -> Floats:
        """Return the labels (n,) of 0 and 1 to train the shared network with; called once."""

    def gradient(self, gradient: Singles, labels: Floats, step: int, party: str) -> Singles:
        """Return what a party gets of ∂loss/∂h, (b, width); `labels` (b,) are those of the batch."""


@dataclass(frozen=True, slots=True)
class NoProtection:
    """Gradients leave as they are: their norm and direction tell the labels."""

    def labels(self, labels: Floats) -> Floats:
        """Return the labels as they are."""
        return labels

    def gradient(self, gradient: Singles, labels: Floats, step: int, party: str) -> Singles:
        """Return the gradient as it is."""
        return gradient


@dataclass(frozen=True, slots=True)
class MaxNorm:
    """Every row's gradient gets noise along itself until its expected squared norm is the batch's largest.

    g_i·(1 + σ_i·η), σ_i² = max‖g‖²/‖g_i‖² − 1, η ~ N(0, 1) (Li et al. 2022, "Label leakage and protection in
    two-party split learning", max_norm). It hides norms, and flips directions of the rarer class half of the
    time.
    """

    secret: int = field(repr=False)

    def labels(self, labels: Floats) -> Floats:
        """Return the labels as they are."""
        return labels

    def gradient(self, gradient: Singles, labels: Floats, step: int, party: str) -> Singles:
        """Return the gradient with noise along each row."""
        squares = np.square(gradient.astype(np.float64)).sum(axis=1, keepdims=True)
        largest = squares.max(initial=0.0)
        # A row without a gradient has no direction to add noise along, and stays.
        ratio = np.divide(largest, squares, out=np.ones_like(squares), where=squares > 0)
        draws = noise_for(self.secret, step, party, gradient.tobytes()).standard_normal(squares.shape)
        noised: Singles = (gradient * (1.0 + np.sqrt(ratio - 1.0) * draws)).astype(np.float32)
        return noised


@dataclass(frozen=True, slots=True)
class Marvell:
    """Gaussian noise by class that makes both classes' gradients as alike as its power allows.

    Li et al. 2022 (as in `MaxNorm`), Marvell: the covariances, one for each class, minimise the symmetric
    Kullback-Leibler divergence of the two noised distributions under a bound P = power·‖ḡ₁ − ḡ₀‖² on the
    expected squared norm of the noise.

    Attributes:
        power: Above 0; 4 is what the authors call strong, 0.1 weak.
    """

    power: float
    secret: int = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse a power that is none.

        Raises:
            ConfigError: It is not above 0.
        """
        if not (math.isfinite(self.power) and self.power > 0):
            raise ConfigError("the power of marvell's noise must be above 0")

    def labels(self, labels: Floats) -> Floats:
        """Return the labels as they are."""
        return labels

    def gradient(self, gradient: Singles, labels: Floats, step: int, party: str) -> Singles:
        """Return the gradient with noise; a batch of one class gets isotropic noise of its own size."""
        exact = gradient.astype(np.float64)
        rows, width = exact.shape
        draws = noise_for(self.secret, step, party, gradient.tobytes())
        isotropic = draws.standard_normal((rows, width))
        along = draws.standard_normal((rows, 1))
        positive = labels > 0.5
        if positive.all() or not positive.any():
            size = math.sqrt(self.power * float(np.square(exact).sum(axis=1).mean()) / width)
            return (exact + size * isotropic).astype(np.float32)
        noise = noise_powers(exact, positive, self.power)
        across = np.where(positive, noise.across_1, noise.across_0)[:, np.newaxis]
        extra = np.where(positive, noise.along_1 - noise.across_1, noise.along_0 - noise.across_0)[
            :, np.newaxis
        ]
        added = np.sqrt(across) * isotropic + np.sqrt(np.maximum(extra, 0.0)) * along * noise.direction
        return (exact + added).astype(np.float32)


@dataclass(frozen=True, slots=True)
class LabelDP:
    """Randomised response (Warner 1965): each label is flipped once, with probability 1/(1 + e^ε).

    Everything in stage 1 is computed from the flipped labels, at B too, so whatever A sees of it is
    ε-differentially private in each label, and no attack and no number of epochs gets behind it.

    Attributes:
        epsilon: Above 0.
    """

    epsilon: float
    secret: int = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse an ε that is none.

        Raises:
            ConfigError: It is not above 0.
        """
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ConfigError("ε of label_dp must be above 0")

    @property
    def flip_probability(self) -> float:
        """How often a label is not the true one."""
        return 1.0 / (1.0 + math.exp(self.epsilon))

    def labels(self, labels: Floats) -> Floats:
        """Return the labels, some of them flipped."""
        flips = noise_for(self.secret, 0, "label_dp").random(len(labels)) < self.flip_probability
        return np.where(flips, 1.0 - labels, labels)

    def gradient(self, gradient: Singles, labels: Floats, step: int, party: str) -> Singles:
        """Return the gradient as it is."""
        return gradient


@dataclass(frozen=True, slots=True)
class Release:
    """What A does to its representations before they leave.

    Attributes:
        clip: Largest Euclidean norm of a row, above 0; None for no bound.
        noise: Standard deviation of Gaussian noise on each number, in units of `clip`; at least 0.
        secret: What the noise is drawn from.
    """

    clip: float | None = None
    noise: float = 0.0
    secret: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        """Refuse numbers out of range.

        Raises:
            ConfigError: A number is out of its range, or there is noise without a bound to measure it by.
        """
        if self.clip is not None and not (math.isfinite(self.clip) and self.clip > 0):
            raise ConfigError("clip must be a finite number above 0")
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise ConfigError("noise must be a finite number of at least 0")
        if self.noise and self.clip is None:
            raise ConfigError("noise on representations needs a clip", advice="set clip, such as 1.0")

    def training_noise(self, values: Singles, step: int) -> Singles | None:
        """Return the noise of a training batch (b, width), anew for every step and for other values."""
        if not self.noise or self.clip is None:
            return None
        draws = noise_for(self.secret, step, "representations", values.tobytes())
        return (self.noise * self.clip * draws.standard_normal(values.shape)).astype(np.float32)

    def stored_noise(self, rows: Ints, width: int, about: bytes) -> Singles | None:
        """Return the noise of rows outside of training, (r, width): always the same for a row of a network.

        Else whoever asks often enough would see the mean.

        Args:
            rows: Positions.
            width: Of a representation.
            about: Tells networks and tables apart, which must not share noise.
        """
        if not self.noise or self.clip is None:
            return None
        noise = np.empty((len(rows), width), dtype=np.float32)
        blocks = rows // _NOISE_BLOCK
        for block in np.unique(blocks):
            draws = noise_for(self.secret, int(block), "stored representations", about)
            whole = draws.standard_normal((_NOISE_BLOCK, width))
            noise[blocks == block] = self.noise * self.clip * whole[rows[blocks == block] % _NOISE_BLOCK]
        return noise


def noise_for(secret: int, step: int, party: str, about: bytes = b"") -> np.random.Generator:
    """Return the numbers of one step for one receiver, and of one value that they hide."""
    value = hashlib.sha256(about).hexdigest()
    key = hashlib.sha256(f"colonnade noise v2|{secret}|{step}|{party}|{value}".encode()).digest()[:16]
    return np.random.Generator(np.random.Philox(key=np.frombuffer(key, dtype="<u8")))


NO_PROTECTION = NoProtection()
OPEN_RELEASE = Release()
