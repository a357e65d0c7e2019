"""What each party learnt in a job with networks, in plain words (PROTOCOLS 3, "Leaks")."""

from __future__ import annotations

from collections.abc import Mapping

from common.runtime.config_net import NetJob
from party_b.leaks import Flow


def net_leaks(job: NetJob, counts: Mapping[str, int]) -> list[str]:
    """Return what each party learnt, one sentence or two an entry, each beginning with who learnt it."""
    if not job.passive:
        return [f"{job.active} trained on its own columns; nothing left it, and nobody learnt anything."]
    return []


def net_flows(job: NetJob) -> list[Flow]:
    """Return what went over the wire, for the diagram of the report."""
    return []
