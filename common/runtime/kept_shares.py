"""Shares of cross products on a party's own disk, each with the attempt in which its pair made it.

A pair makes its shares anew, under fresh masks, unless both ends name the same attempt: shares of two
different set-ups do not add up to the products.
"""

from __future__ import annotations

import numpy as np

from common.crypto.gram_round import Shares
from common.runtime.checkpoint import Checkpoint

_NAME = "share-{}"


def keep_share(checkpoint: Checkpoint, party: str, attempt: int, share: Shares) -> None:
    """Write our share of the products with a party durably."""
    checkpoint.keep(_NAME.format(party), {"attempt": attempt, "share": share.tolist()})


def kept_attempts(checkpoint: Checkpoint, parties: tuple[str, ...]) -> dict[str, int]:
    """Return, for each party with whom a share is kept, the attempt in which it was made."""
    found = {party: checkpoint.kept(_NAME.format(party)) for party in parties}
    return {party: int(kept["attempt"]) for party, kept in found.items() if kept is not None}


def kept_share(checkpoint: Checkpoint, party: str) -> Shares | None:
    """Return our share of the products with a party, None without one."""
    kept = checkpoint.kept(_NAME.format(party))
    return None if kept is None else np.array(kept["share"], dtype=object)
