"""How a party takes part in a session's sums, as the job says: trees or pairwise masks."""

from __future__ import annotations

from collections.abc import Mapping

from common.crypto.aggregation_trees import Tree, TreePair, plan_trees, require_hidden, star
from common.crypto.entropy import Entropy
from common.crypto.pairwise_masks import AgreementKey
from common.crypto.secure_sum import (
    DEFAULT_SCALE_BITS,
    OpenShares,
    PairwiseScheme,
    RingFixedPoint,
    SumScheme,
    SumShare,
    TreeScheme,
)
from common.errors import RemoteProtocolError
from common.runtime.config.vfb2 import Vfb2Job

# Requests of one root that a party keeps besides those that its staleness allows: sums over many rows.
_PIECES = 64


def window_of(job: Vfb2Job) -> int:
    """Return how far the numbers of a root's open requests may be apart."""
    return 4 * job.train.max_staleness * len(job.dominators) + _PIECES


def tree_pairs(job: Vfb2Job) -> dict[str, TreePair]:
    """Return the two trees of every root."""
    return {root: plan_trees(job.members, root, job.train.tree_shape) for root in job.dominators}


def require_hidden_sums(job: Vfb2Job) -> None:
    """Run the span test for every party, before anybody takes part.

    Raises:
        Refused: The trees of a root would show somebody more than the sum.
    """
    if job.train.aggregation == "trees":
        for pair in tree_pairs(job).values():
            require_hidden(pair)


def parents_of(job: Vfb2Job, party: str) -> tuple[str, ...]:
    """Return the parties that get sums from a party without being their root: those it must dial."""
    if job.train.aggregation == "pairwise":
        return ()
    found = {
        tree.parents[party]
        for pair in tree_pairs(job).values()
        for tree in (pair.scores, pair.masks)
        if party in tree.parents and tree.parents[party] != tree.root
    }
    return tuple(sorted(found))


def dialled_by(job: Vfb2Job, party: str) -> tuple[str, ...]:
    """Return everybody whom a party dials while training."""
    if party in job.dominators:
        return tuple(sorted(set(job.members) - {party}))
    return parents_of(job, party)


def open_shares(
    job: Vfb2Job, party: str, entropy: Entropy, key: AgreementKey | None, keys: Mapping[str, bytes]
) -> OpenShares:
    """Return a party's part in the sums of a session.

    Args:
        job: The job.
        party: This one.
        entropy: Where masks come from.
        key: This party's own of the session; only for pairwise masks.
        keys: Public ones of all parties; only for pairwise masks.

    Raises:
        RemoteProtocolError: Keys are missing, or are none.
        Refused: The trees fail the span test.
    """
    scale = RingFixedPoint(DEFAULT_SCALE_BITS, len(job.members))
    return OpenShares(_scheme(job, party, scale, entropy, (key, keys)), window_of(job))


class _NoSession:
    """Stands where a scheme will be: before the first session nothing may be summed."""

    def begin(self, root: str, number: int, length: int) -> SumShare:
        raise RemoteProtocolError(f"{root} asked for a sum before any session was begun")


def no_shares(job: Vfb2Job) -> OpenShares:
    """Return what refuses every sum, for the time before the first session."""
    return OpenShares(_NoSession(), window_of(job))


def _scheme(
    job: Vfb2Job,
    party: str,
    scale: RingFixedPoint,
    entropy: Entropy,
    keys: tuple[AgreementKey | None, Mapping[str, bytes]],
) -> SumScheme:
    if job.train.aggregation == "trees":
        return TreeScheme(party, tree_pairs(job), scale, entropy)
    own, public = keys
    if own is None or public.keys() != set(job.members) or public[party] != own.public:
        raise RemoteProtocolError("the session's public keys are not one for each party, ours among them")
    others = {peer: public[peer] for peer in job.members if peer != party}
    trees: dict[str, Tree] = {root: star(job.members, root) for root in job.dominators}
    return PairwiseScheme(party, trees, scale, own.seeds(party, job.digest(), others))
