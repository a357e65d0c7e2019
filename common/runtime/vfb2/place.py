"""Where one party's part in a VFB² job is, and which role it plays there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from common.crypto.aggregation_trees import TreeName
from common.crypto.secure_sum import OpenShares, SumShare, Words
from common.glm.asynchronous import ScoreRequest, Update
from common.glm.collaboration import Collaboration
from common.rpc.pb import job_pb2
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.vfb2.wire import Limits


class Role(Protocol):
    """What a collaborator and a dominator have in common (party_a/vfb2.py, party_b/vfb2.py)."""

    collaboration: Collaboration

    def contribute(self, request: ScoreRequest) -> SumShare:
        """Mask what was asked for."""
        ...

    def absorb(self, root: str, number: int, tree: TreeName, child: str, words: Words) -> SumShare:
        """Add a child's partial sum."""
        ...

    def apply(self, update: Update) -> None:
        """Move our block."""
        ...

    def begin_session(self, shares: OpenShares, first_request: int) -> None:
        """Take part in the sums of a new session."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where an engine is.

    Attributes:
        party: This one.
        job: The job.
        turn: Of the job, outside sessions.
        limits: What messages may speak of.
    """

    party: str
    job: Vfb2Job
    turn: job_pb2.Turn
    limits: Limits

    def turn_in(self, session: int) -> job_pb2.Turn:
        """Return the turn of a session's messages."""
        turn = job_pb2.Turn()
        turn.CopyFrom(self.turn)
        turn.round = session
        return turn


# Takes the state as it is now; what it returns makes a checkpoint's bytes, in another thread.
Snapshot = Callable[[], Callable[[], bytes]]
