"""What holds on every floor: generated examples are the same in every run, and no test is about time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("reproducible", derandomize=True, database=None, deadline=None)
settings.load_profile("reproducible")
