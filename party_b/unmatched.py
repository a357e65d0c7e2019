"""Why many ids have no partner although enough have: statistics of own ids are compared, never ids."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from common.data.id_profile import LEAST_DESCRIBED, IdProfile, likely_causes
from common.data.ids import ids_without_partner
from common.runtime.stopwatch import Stopwatch
from common.types import Ints
from party_b.alignment_client import AlignmentClient

# Ids written in two ways leave the same customers without a partner on both sides, so the side with fewer of
# them decides, and one that has none needs no explanation. Shares are rounded to 10 %, so less is not seen.
_UNUSUAL_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was found out.

    Attributes:
        hints: A sentence each.
        described: Parties that have said what their ids without a partner look like.
    """

    hints: tuple[str, ...] = ()
    described: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Unmatched:
    """The ids that not all parties have, as the active party sees them.

    Attributes:
        party: The active party.
        ids: Its ids in file order; may be seen by it alone.
        counts: Ids by party.
        common: Its rows that all parties have.
    """

    party: str
    ids: Sequence[str] = field(repr=False)
    counts: Mapping[str, int]
    common: Ints = field(repr=False)

    @property
    def any(self) -> bool:
        """Whether more ids could have been common."""
        return len(self.common) < min(self.counts.values())

    def counted(self) -> str:
        """Return how many ids are common, and how many every party has."""
        had = ", ".join(f"{count:,} at {party}" for party, count in sorted(self.counts.items()))
        return f"{len(self.common):,} ids are common to all parties; there are {had}"

    async def explain(self, passive: Mapping[str, AlignmentClient], watch: Stopwatch) -> Explanation:
        """Ask parties of which unusually many ids have no partner what these look like, and compare."""
        asked = {name: client for name, client in passive.items() if self._is_unusual(name)}
        if not asked:
            return Explanation()
        profiles = await asyncio.gather(*(client.describe() for client in asked.values()))
        described = {name: one for name, one in zip(asked, profiles, strict=True) if one is not None}
        alone = ids_without_partner(self.ids, self.common)
        ours = await watch.thread("aligning", IdProfile.of, alone)
        hints = [
            f"of the ids without a partner: {cause}"
            for name, theirs in described.items()
            for cause in likely_causes(self.party, ours, name, theirs)
        ]
        return Explanation(tuple(hints), tuple(described))

    def _is_unusual(self, other: str) -> bool:
        fewer = min(self.counts[other], self.counts[self.party])
        return fewer - len(self.common) >= max(LEAST_DESCRIBED, _UNUSUAL_SHARE * fewer)


def ids_described(active: str, party: str) -> str:
    """Return what a description of ids has told the active party."""
    return (
        f"{active} learnt what those of {party}'s ids look like that are not common, because they are many: "
        "the lengths of the shortest, the usual and the longest one, with how many characters all of them "
        "begin alike, and the shares of a few classes, such as ids with leading zeros, rounded to 10 %."
    )
