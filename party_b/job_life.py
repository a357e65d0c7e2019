"""The life of a job at the active party, the same for every algorithm: open, be present, align, close."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from common.errors import ColonnadeError, PeerUnreachable
from common.rpc.pb import job_pb2 as pb
from common.rpc.wiretap import Wiretap
from common.runtime.alignment_cache import Alignment, AlignmentCache
from common.runtime.checkpoint import CLOSING, Checkpoint
from common.runtime.config.party import PartyConfig
from common.runtime.coordinator_client import CoordinatorClient, in_round
from common.runtime.linear_design import alignment_key, id_rule
from common.runtime.state import JobStore
from party_b.alignment import Aligned, AlignmentConductor, Alike
from party_b.jobs import ActiveJob
from party_b.passive_line import PassiveLine
from party_b.unmatched import Unmatched

log = logging.getLogger("vfl.party_b")

# Between two looks for a party that was lost.
_FIRST_REDIAL_S = 0.2
_LAST_REDIAL_S = 2.0

_ALIGNED = "aligned"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tools:
    """What every job of this party uses."""

    own: PartyConfig
    store: JobStore
    executor: Executor
    wiretap: Wiretap


@dataclass(frozen=True, slots=True)
class OwnRows:
    """This party's ids as a job aligns them.

    Attributes:
        ids: In file order; may be seen by this party alone.
        least_common: With fewer common ids the job ends, and nobody learns which they are.
    """

    ids: tuple[str, ...]
    least_common: int


@dataclass(frozen=True, slots=True)
class Opened:
    """What is known once every passive party has opened the job.

    Attributes:
        own: The ids that are aligned.
        rows: By party, before alignment.
        kept: An earlier alignment that every party still has, None without one.
        replies: By passive party.
    """

    own: OwnRows
    rows: dict[str, int]
    kept: Alignment | None
    replies: dict[str, pb.OpenJobReply]


class JobLife:
    """One job's connections, presence, phases and end."""

    def __init__(
        self,
        active: ActiveJob,
        tools: Tools,
        passive: Sequence[PassiveLine],
        coordinator: CoordinatorClient | None = None,
    ) -> None:
        """The passive parties come in the job's order."""
        self.seconds = active.seconds
        self.watch = active.stopwatch
        self.stays_away = False  # whether a party was gone for longer than it may be
        self._earlier: list[JobLife] = []
        self._running: tuple[str, float] | None = None
        self._active = active
        self._tools = tools
        self._turn = turn_of(active)
        self._passive = passive
        # The coordinator last: whoever is present there would hear of the end from it before it hears from
        # us, and take it for a failure of its own.
        self._last = () if coordinator is None else (coordinator,)
        self._peers: tuple[PassiveLine | CoordinatorClient, ...] = (*passive, *self._last)
        self._attending: dict[str, asyncio.Task[None]] = {}
        self._lost: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        active.traffic = self.traffic

    @property
    def only_closing(self) -> bool:
        """Whether an earlier attempt has come as far as closing: the coordinator is not needed then."""
        return Checkpoint.of(self._tools.store, self._active.job_id).has(CLOSING)

    async def until_all_answer(self) -> None:
        """Wait until every party answers that is still needed.

        Raises:
            PeerUnreachable: A party stays away for `deadlines.peer_s`.
        """
        needed = self._passive if self.only_closing else self._peers
        looking = [asyncio.ensure_future(self._until_it_answers(peer)) for peer in needed]
        try:
            await asyncio.gather(*looking)
        finally:
            for task in looking:
                task.cancel()

    async def rejoin(self, earlier: Sequence[JobLife]) -> None:
        """Open the job again at the coordinator, before anybody reads data, which may take long.

        Args:
            earlier: Attempts before this one; they stay present until the passive parties have opened it too.
        """
        if self.only_closing:
            return
        self._earlier = list(earlier)
        for last in self._last:
            await last.open_job()
            self.attend(last)

    async def open(self, own: OwnRows) -> Opened:
        """Open the job at every passive party, and be present there from then on."""
        kept = await asyncio.to_thread(self._kept, own)
        opening = [asyncio.ensure_future(self._open_at(client, kept)) for client in self._passive]
        try:
            replies = await asyncio.gather(*opening)
        finally:
            for task in opening:
                task.cancel()
        named = {client.name: reply for client, reply in zip(self._passive, replies, strict=True)}
        while self._earlier:
            await self._earlier.pop().disconnect()
        rows = {name: reply.rows for name, reply in named.items()} | {self._tools.own.party: len(own.ids)}
        return Opened(own, rows, kept if all(reply.alignment_kept for reply in replies) else None, named)

    async def align(self, opened: Opened) -> Aligned:
        """Find the rows that all parties have, and say how many they are and why others may not be."""
        ids = opened.own.ids
        if not self._passive:
            return Aligned(Alignment(b"", np.arange(len(ids))), {}, reused=False)
        earlier = await asyncio.to_thread(self.kept_alignment, ids)
        if earlier and opened.kept and opened.kept.alignment_id == earlier.alignment.alignment_id:
            await self._active.enter("aligning", "every party has kept the alignment of this job")
            return earlier
        aligned = await self._align(opened)
        lines = {client.name: client.alignment for client in self._passive}
        unmatched = Unmatched(self._tools.own.party, ids, opened.rows, aligned.alignment.rows)
        found = await unmatched.explain(lines, self.watch)
        if found.hints:
            for note in (unmatched.counted(), *found.hints):
                await self._active.warn(note)
        notes = (unmatched.counted(), *found.hints) if unmatched.any else ()
        if aligned.reused:
            notes += ("ids were not aligned again: every party had kept the alignment of an earlier job",)
        aligned = replace(aligned, notes=notes, described=found.described)
        if self._active.config.resumes:
            await asyncio.to_thread(self._keep_alignment, ids, aligned)
        return aligned

    def kept_alignment(self, ids: Sequence[str]) -> Aligned | None:
        """Return the alignment that an earlier attempt of this job has kept, None without one."""
        checkpoint = Checkpoint.of(self._tools.store, self._active.job_id)
        kept = checkpoint.kept(_ALIGNED)
        key = alignment_key(self._tools.own, self._active.config, ids)
        found = AlignmentCache(checkpoint.folder).find(key)
        if kept is None or found is None or found.alignment_id.hex() != kept["alignment_id"]:
            return None
        return Aligned(
            found,
            {(one, other): int(count) for one, other, count in kept["shared"]},
            bool(kept["reused"]),
            tuple(kept["notes"]),
            tuple(kept["described"]),
        )

    def _keep_alignment(self, ids: Sequence[str], aligned: Aligned) -> None:
        checkpoint = Checkpoint.of(self._tools.store, self._active.job_id)
        key = alignment_key(self._tools.own, self._active.config, ids)
        AlignmentCache(checkpoint.folder).keep(key, aligned.alignment)
        values = {
            "alignment_id": aligned.alignment.alignment_id.hex(),
            "shared": [[*pair, count] for pair, count in aligned.shared.items()],
            "reused": aligned.reused,
            "notes": aligned.notes,
            "described": aligned.described,
        }
        checkpoint.keep(_ALIGNED, values)

    async def _align(self, opened: Opened) -> Aligned:
        """Align the ids; an alignment that everybody has kept serves again."""
        ids = opened.own.ids
        if opened.kept is not None:
            await self._active.enter("aligning", "every party has kept the alignment of an earlier job")
            return Aligned(opened.kept, {}, reused=True)
        own = self._tools.own
        sizes = ", ".join(f"{name} {count:,}" for name, count in opened.rows.items())
        await self._active.enter("aligning", f"aligning ids: {sizes}")
        aligned = await AlignmentConductor(
            Alike(own.party, ids, opened.rows, opened.own.least_common),
            {client.name: client.alignment for client in self._passive},
            self._tools.executor,
            self.watch,
            self._active.advance,
        ).run()
        key = await asyncio.to_thread(alignment_key, own, self._active.config, ids)
        await asyncio.to_thread(AlignmentCache(own.state).keep, key, aligned.alignment)
        return aligned

    async def close(self, rounds: int) -> dict[str, pb.CloseJobReply]:
        """Tell every party that the job has finished; return what each one says about itself."""
        await self._active.enter("closing", "closing the job")
        request = pb.CloseJobRequest(turn=in_round(self._turn, rounds), outcome=pb.FINISHED)
        replies = await asyncio.gather(*(client.close_job(request) for client in self._passive))
        named = {client.name: reply for client, reply in zip(self._passive, replies, strict=True)}
        for last in self._last:
            try:
                named[last.name] = await last.close_job(request)
            except ColonnadeError as exc:
                # Every part of the model is kept by now, and the coordinator has none: nothing is lost.
                log.warning("job %s: the coordinator did not close it: %s", self._active.job_id, exc)
        return named

    async def abandon(self, outcome: pb.Outcome.ValueType, reason: str) -> None:
        """Tell every party that the job is over; those that cannot be reached notice by themselves."""
        turn = in_round(self._turn, self._active.rounds)
        request = pb.CloseJobRequest(turn=turn, outcome=outcome, reason=reason)
        closing = (client.close_job(request) for client in self._passive)
        replies = await asyncio.gather(*closing, return_exceptions=True)
        replies += await asyncio.gather(
            *(client.close_job(request) for client in self._last), return_exceptions=True
        )
        for peer, reply in zip(self._peers, replies, strict=True):
            if isinstance(reply, BaseException):
                log.info("job %s: %s was not told that it ended: %s", self._active.job_id, peer.name, reply)

    async def disconnect(self) -> None:
        """Be present no longer, and close every connection of the job.

        Not before every party was told that it ended: it would take our absence for a loss.
        """
        for attending in self._attending.values():
            attending.cancel()
        await asyncio.gather(*self._attending.values(), return_exceptions=True)
        for peer in self._peers:
            await peer.disconnect()

    async def while_present(self, work: Coroutine[None, None, T]) -> T:
        """Do the work while every party that has opened the job is present; end it with the first loss."""
        main = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {main, self._lost}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._lost.done() and not main.done():
                cause = self._lost.result()
                self.stays_away = isinstance(cause, PeerUnreachable)
                raise cause
            return await main
        finally:
            main.cancel()
            await asyncio.gather(main, return_exceptions=True)

    def attend(self, peer: PassiveLine | CoordinatorClient) -> None:
        """Be present at a party from its opening on, because its clock for us runs from then on."""
        if peer.name in self._attending:
            return
        attending = asyncio.ensure_future(peer.attend())
        attending.add_done_callback(self._on_absence)
        self._attending[peer.name] = attending

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that this party has sent and received in the job so far."""
        totals, (sent, received) = self._tools.wiretap.totals(self._active.job_id), self._active.before
        return totals.sent_bytes + sent, totals.received_bytes + received

    def cost(self) -> dict[str, object]:
        """Return what the job has cost so far, the phase under way included, to be kept with a round."""
        sent, received = self.traffic()
        phases = dict(self.seconds)
        if self._running is not None:
            phase, since_s = self._running
            phases[phase] = phases.get(phase, 0.0) + time.monotonic() - since_s
        computing = dict(self.watch.seconds)
        return {"sent_bytes": sent, "received_bytes": received, "phases": phases, "computing": computing}

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Take the time of a phase."""
        start_s = time.monotonic()
        self._running = (phase, start_s)
        try:
            yield
        finally:
            self._running = None
            taken_s = time.monotonic() - start_s
            self.seconds[phase] = self.seconds.get(phase, 0.0) + taken_s

    async def _until_it_answers(self, peer: PassiveLine | CoordinatorClient) -> None:
        deadlines = self._tools.own.deadlines
        loop = asyncio.get_running_loop()
        until_s, pause_s = loop.time() + deadlines.peer_s, _FIRST_REDIAL_S
        while True:
            left_s = until_s - loop.time()
            try:
                return await peer.greet(max(0.0, min(left_s, deadlines.call_s)))
            except PeerUnreachable as exc:
                if left_s <= pause_s:
                    raise PeerUnreachable(
                        f"{peer.name} was gone for {deadlines.peer_s:g} s (deadlines.peer_s): {exc.what}",
                        where=exc.where,
                        advice="look whether its service runs and what its log says, then run the job again",
                    ) from exc
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_REDIAL_S)

    def _kept(self, own: OwnRows) -> Alignment | None:
        earlier = self.kept_alignment(own.ids)
        if earlier is not None:
            return earlier.alignment
        party = self._tools.own
        kept = AlignmentCache(party.state).find(alignment_key(party, self._active.config, own.ids))
        return kept if kept is not None and len(kept.rows) >= own.least_common else None

    async def _open_at(self, client: PassiveLine, kept: Alignment | None) -> pb.OpenJobReply:
        proposed = b"" if kept is None else kept.alignment_id
        reply = await client.open_job(id_rule(self._tools.own, self._active.config), proposed)
        self.attend(client)
        return reply

    def _on_absence(self, attending: asyncio.Task[None]) -> None:
        cause = None if attending.cancelled() else attending.exception()
        if cause is not None and not self._lost.done():
            self._lost.set_result(cause)


def turn_of(active: ActiveJob) -> pb.Turn:
    """Return the turn of a job outside its rounds."""
    return pb.Turn(job_id=active.job_id, job_digest=active.config.digest(), attempt=active.attempt)
