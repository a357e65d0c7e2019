"""The one door to torch: a module that needs it imports it from here and fails with the command to install
it.

from common.nets.backend import nn, torch
"""

from __future__ import annotations

from common.nets.available import require_torch

require_torch()

import safetensors.torch as tensor_files  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

__all__ = ["functional", "nn", "tensor_files", "torch"]
