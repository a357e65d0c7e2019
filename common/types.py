"""Words that every floor shares."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
# How long the random exponent of a ciphertext's noise is (common/crypto/paillier.py).
Noise: TypeAlias = Literal["proven", "short"]
Role: TypeAlias = Literal["passive", "active", "coordinator"]
