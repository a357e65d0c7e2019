"""A party's role in VFB² when it does not dominate (Zhang et al. 2021, Algorithms 1 and 3).

Algorithm 1   step 2   u_l = w_l·x_l,i for the rows that a dominator names
              step 3   u_l + δ_l; both sums pass through us if we stand between others and the root
Algorithm 3   step 2   receive θ and the row numbers
              step 3   v = gradient of our update rule from θ and our columns + ∇g(w_l), at our current w_l
              step 4   w_l ← w_l − η v

What surrounds them, ends of epochs, SVRG's θ̃ and step sizes on trial, is in `collaboration`. With q parties
and updates that arrive on q − 1 streams, `apply` may be called by several threads; everything else by one.
"""

from __future__ import annotations

from common.crypto.aggregation_trees import TreeName
from common.crypto.secure_sum import OpenShares, SumShare, Words
from common.glm.asynchronous import ScoreRequest, Update
from common.glm.collaboration import Collaboration, CollaborationState
from common.types import Floats


class Collaborator:
    """Our columns, our block, and our part in everybody's sums. What leaves, leaves in a `SumShare`."""

    def __init__(self, collaboration: Collaboration, shares: OpenShares) -> None:
        self.collaboration = collaboration
        self._shares = shares

    @property
    def weights(self) -> Floats:
        """Our block as it is now, (d,); other threads may be moving it."""
        return self.collaboration.block.weights

    def contribute(self, request: ScoreRequest) -> SumShare:
        """Algorithm 1, steps 2 and 3: mask what was asked for; the same words if it was asked before."""
        share = self._shares.requested(request.root, request.number, request.length)
        if not share.contributed:
            self.collaboration.give(request, share.party, share.contribute)
        return share

    def absorb(self, root: str, number: int, tree: TreeName, child: str, words: Words) -> SumShare:
        """Algorithm 1, steps 4 and 5: add a child's partial sum, which may come before the request does."""
        share = self._shares.awaited(root, number, len(words))
        share.absorb(tree, child, words)
        return share

    def apply(self, update: Update) -> None:
        """Algorithm 3, steps 3 and 4: move our block; an update that came before changes nothing."""
        self.collaboration.apply(update)

    def begin_session(self, shares: OpenShares, first_request: int) -> None:
        """Take part in the sums of a new session; what was open in the one before is forgotten.

        Args:
            shares: With masks that serve no earlier session.
            first_request: Where an active party's numbers begin; we ask for nothing.
        """
        self._shares = shares

    def state(self) -> CollaborationState:
        """Return what a restart needs; masks are not part of it, they are drawn afresh."""
        return self.collaboration.state()

    def restore(self, state: CollaborationState) -> None:
        """Go back to a state; the dominators send again what came after it."""
        self.collaboration.restore(state)
