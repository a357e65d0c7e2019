"""How many cores torch's arithmetic takes in this process."""

from __future__ import annotations

from common.nets.backend import torch


def use_threads(count: int) -> None:
    """Let torch use so many threads here; small networks are fastest with 1."""
    torch.set_num_threads(count)
