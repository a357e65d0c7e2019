"""Gives memory back to the system after a phase that used more than the next ones will."""

from __future__ import annotations

import ctypes
import gc
import sys


def give_back() -> None:
    """Let the C library return what it has kept of freed memory; nothing happens where it cannot.

    Reading, aligning and preparing leave holes in the heaps of several threads, about as much as the rows
    themselves take, and the rounds after them need little.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # Only glibc has it.
        if trim is not None:
            trim(0)
