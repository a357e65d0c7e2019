"""Conducts entity alignment (protos/vfl/v1/align.proto): relays the sets, leads common points back."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from common.crypto.entropy import SystemEntropy
from common.crypto.psi_curve import SecretScalar
from common.data.id_profile import IdProfile, likely_causes
from common.errors import DataError
from common.runtime.alignment_cache import ALIGNMENT_ID_BYTES, Alignment
from common.runtime.stopwatch import Stopwatch
from common.runtime.tally import Tally
from common.types import Ints
from party_b.align import ActiveAlignment, ring
from party_b.alignment_client import AlignmentClient

T = TypeVar("T")

# Is told in plain words how far the alignment is, and how many seconds it will still take.
Report = Callable[[str, float], Awaitable[None]]

_REPORT_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Aligned:
    """An alignment as the job uses it.

    Attributes:
        alignment: Which of B's rows are common.
        shared: How many anonymous points the sets of two parties share, which B saw; empty with one passive
            party, and where an earlier alignment was used.
        reused: Whether an earlier job made it.
        notes: Sentences for the report: how many ids are common, and why others may not be.
        described: Parties that have said what their ids without a partner look like.
    """

    alignment: Alignment
    shared: Mapping[tuple[str, str], int]
    reused: bool
    notes: tuple[str, ...] = ()
    described: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """What is aligned.

    Attributes:
        party: The active party.
        ids: Its ids in file order; may be seen by it alone.
        counts: Ids by party, as each said when the job was opened.
        least_common: With fewer common ids the job ends, and nobody learns which they are.
    """

    party: str
    ids: tuple[str, ...] = field(repr=False)
    counts: Mapping[str, int]
    least_common: int


class AlignmentConductor:
    """One alignment between the active party and every passive one."""

    def __init__(
        self,
        alike: Alike,
        passive: Mapping[str, AlignmentClient],
        executor: Executor,
        watch: Stopwatch,
        report: Report,
    ) -> None:
        """The passive parties come in the job's order."""
        self._watch = watch
        self._alike = alike
        self._passive = passive
        self._report = report
        self._role = ActiveAlignment(alike.party, alike.ids, SecretScalar.draw(SystemEntropy()), executor)
        self._tally = Tally()

    async def run(self) -> Aligned:
        """Align, and let every passive party note its rows.

        Raises:
            DataError: Too few ids are common; says what may be the cause.
        """
        reporting = asyncio.ensure_future(self._keep_reporting())
        try:
            await _all(self._pass_around(owner) for owner in (*self._passive, self._alike.party))
        finally:
            self._tally.stop()
            reporting.cancel()
        common = await self._watch.thread("aligning", self._role.common)
        found = len(common[self._alike.party])
        if found < self._alike.least_common:
            raise await self._too_few(found)
        several = len(self._passive) > 1
        shared = await self._watch.thread("aligning", self._role.shared_by_two) if several else {}
        alignment_id = secrets.token_bytes(ALIGNMENT_ID_BYTES)
        own, *_ = await _all(
            self._lead_back(owner, positions, alignment_id) for owner, positions in self._own_first(common)
        )
        rows = await self._watch.thread("aligning", self._role.own_rows, own)
        return Aligned(Alignment(alignment_id, rows), shared, reused=False)

    async def _pass_around(self, owner: str) -> None:
        """Let a party's set pass every party; the own scalar is the first on ours, the last on the others."""
        role, count = self._role, self._alike.counts[owner]
        counting = partial(self._tally.add, f"{self._alike.party} {owner}")
        if owner == self._alike.party:
            points = await self._watch.thread("aligning", role.blind_own, counting)
        else:
            points = await self._passive[owner].blind_own(count, self._reaching(owner, owner))
        for hop in ring(tuple(self._passive), owner):
            points = await self._passive[hop].blind(owner, points, self._reaching(hop, owner))
        if owner == self._alike.party:
            role.take_back(points)
        else:
            await self._watch.thread("aligning", role.finish, owner, points, counting)

    async def _lead_back(self, owner: str, positions: Ints, alignment_id: bytes) -> Ints:
        """Follow common points back through the hands they came; return where they were in the first one."""
        for hop in reversed(ring(tuple(self._passive), owner)):
            positions = await self._passive[hop].reveal(owner, positions)
        if owner != self._alike.party:
            await self._passive[owner].set_common(alignment_id, positions)
        return positions

    async def _too_few(self, found: int) -> DataError:
        own = self._alike.party
        profiles = await _all(client.describe() for client in self._passive.values())
        ours = await self._watch.thread("aligning", IdProfile.of, self._alike.ids)
        hints = [
            hint
            for name, theirs in zip(self._passive, profiles, strict=True)
            if theirs is not None
            for hint in likely_causes(own, ours, name, theirs)
        ]
        parties = ", ".join(f"{name} has {count}" for name, count in self._alike.counts.items())
        looks = "; ".join(hints) or (
            "the ids look alike on all sides: compare which rows each side chose, and how it writes ids"
        )
        end = "" if looks.endswith("?") else "."
        return DataError(
            f"{found or 'no'} {'id is' if found in (0, 1) else 'ids are'} common to all parties, "
            f"{self._alike.least_common} are needed",
            where=f"ids: {parties}",
            advice=f"{looks}{end} The policy's min_intersection and min_rows set how many are needed.",
        )

    def _own_first(self, common: Mapping[str, Ints]) -> Iterable[tuple[str, Ints]]:
        return sorted(common.items(), key=lambda item: item[0] != self._alike.party)

    def _reaching(self, party: str, owner: str) -> Callable[[int], None]:
        return partial(self._tally.reach, f"{party} {owner}")

    async def _keep_reporting(self) -> None:
        counts = self._alike.counts
        total, began_s = sum(counts.values()) * len(counts), time.monotonic()
        while True:
            await asyncio.sleep(_REPORT_EVERY_S)
            done = max(1, self._tally.done)
            eta_s = (time.monotonic() - began_s) * (total - done) / done
            await self._report(f"{100 * done // total} % of {total:,} blinded ids", eta_s)


async def _all(steps: Iterable[Awaitable[T]]) -> list[T]:
    """Do all steps at once; when one fails, break off the others and raise its error."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
