"""Presence in a job: a call held open between two parties, so that each sees the other vanish.

A killed process closes its connections, so the stream breaks at once. A silent network breaks it within
keepalive (channels.Keepalive, 20 s). Whoever is gone then has `peer_s` seconds to come back. A peer that
is merely busy is never taken for dead: the answers to keepalive's pings come from gRPC's own threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Protocol

from common.errors import JobError, PeerUnreachable, foreign_text
from common.rpc.channels import HELD_OPEN
from common.rpc.pb.job_pb2 import Attendance, Presence, Turn

log = logging.getLogger("vfl.rpc")

PRESENCE_EVERY_S = 5.0
"""Often enough for firewalls and proxies that forget idle connections; costs about 60 bytes."""

_FIRST_REDIAL_S = 0.2
_LAST_REDIAL_S = 2.0


class AttendCall(Protocol):
    """`stub.Attend` of any service, on a channel of channels.open_channel."""

    def __call__(self, request: Attendance, *, timeout: float) -> AsyncIterable[Presence]:
        """Start to attend."""


async def attend(
    call: AttendCall,
    turn: Turn,
    *,
    peer: str,
    address: str,
    peer_s: float,
    on_present: Callable[[], None] = lambda: None,
) -> None:
    """Be present in a job at a peer until cancelled; never returns otherwise than by an error.

    Args:
        call: `stub.Attend`.
        turn: The job.
        peer: The party that is called.
        address: Where.
        peer_s: How long the peer may be gone, seconds.
        on_present: Called with every sign of life; the first means that the peer counts us as present.

    Raises:
        PeerUnreachable: The peer was gone for longer than `peer_s`.
        UnknownJob: The peer does not know the job (any more): it was restarted, or the job is closed.
        JobError: The peer says that the job has ended.
        PeerRefused: The peer does not want us in the job.
    """
    absence = _Absence(peer_s)

    def noted(presence: Presence) -> None:
        absence.end()
        on_present()
        if presence.ended:
            raise JobError(
                f"{peer} ended the job: {foreign_text(presence.reason)}", where=f"{peer} at {address}"
            )

    while True:
        lost = await _hold(call, turn, noted, absence.left_s)
        if absence.begin():
            log.info("the connection to %s at %s broke; it has %g s to come back", peer, address, peer_s)
        if not await absence.pause():
            raise PeerUnreachable(
                f"{peer} was gone for {peer_s:g} s (deadlines.peer_s): {lost}",
                where=f"{peer} at {address}",
                advice="look whether its service runs and what its log says, then run the job again",
            ) from lost


class _Absence:
    """How long a peer has been gone, and when to dial it again; it is gone until it is heard of first."""

    def __init__(self, peer_s: float) -> None:
        self._peer_s = peer_s
        self._loop = asyncio.get_running_loop()
        self._since: float | None = self._loop.time()
        self._pause_s = _FIRST_REDIAL_S

    @property
    def left_s(self) -> float:
        """Seconds that the peer still has to come back."""
        return self._peer_s - (0.0 if self._since is None else self._loop.time() - self._since)

    def begin(self) -> bool:
        """Note that the peer is gone; True if it was there until now."""
        begins = self._since is None
        if begins:
            self._since = self._loop.time()
        return begins

    def end(self) -> None:
        """Note that the peer is there."""
        self._since, self._pause_s = None, _FIRST_REDIAL_S

    async def pause(self) -> bool:
        """Wait until the next dial; False, at once, if the peer's time is up before."""
        if self._pause_s > self.left_s:
            return False
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LAST_REDIAL_S)
        return True


async def _hold(
    call: AttendCall, turn: Turn, noted: Callable[[Presence], None], first_within_s: float
) -> Exception:
    """Attend once; return how the connection was lost, or never came about in the given seconds."""
    try:
        # A connection that is accepted and then left without an answer must not outlast the peer's time.
        async with asyncio.timeout(first_within_s) as limit:
            async for presence in call(Attendance(turn=turn), timeout=HELD_OPEN):
                limit.reschedule(None)
                noted(presence)
    except PeerUnreachable as exc:
        return exc
    except TimeoutError:
        return TimeoutError("no answer to its dial")
    return ConnectionError("its service stopped")


class Attendees:
    """The parties that must be present in one job here; the server side of `attend`."""

    def __init__(
        self, peer_s: float, on_vanished: Callable[[str], None], every_s: float = PRESENCE_EVERY_S
    ) -> None:
        """Create the list of a job; made inside the running event loop.

        Args:
            peer_s: How long a party may be gone, seconds; also how long it may take to come at first.
            on_vanished: Called once for a party that was gone for longer.
            every_s: Seconds between two signs of life.
        """
        self._peer_s = peer_s
        self._on_vanished = on_vanished
        self._every_s = every_s
        self._streams: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._reason: str | None = None
        self._ended = asyncio.Event()

    @property
    def present(self) -> frozenset[str]:
        """The parties whose stream is open now."""
        return frozenset(party for party, streams in self._streams.items() if streams)

    def expect(self, parties: Iterable[str]) -> None:
        """Start the clock for parties that have yet to come."""
        for party in parties:
            if not self._streams.get(party):
                self._start_clock(party)

    async def serve(self, party: str, turn: Turn) -> AsyncIterator[Presence]:
        """Yield signs of life to a party until the job ends: the body of the servicer's Attend.

        Args:
            party: The caller, already checked to belong to the job.
            turn: Comes back in every Presence.
        """
        self._arrived(party)
        try:
            while not self._ended.is_set():
                yield Presence(turn=turn)
                await self._until_ended()
            if self._reason is not None:
                yield Presence(turn=turn, ended=True, reason=self._reason)
        finally:
            self._left(party)

    def end(self, reason: str) -> None:
        """Tell everyone present that the job has ended, and watch nobody any longer."""
        if not self._ended.is_set():
            self._reason = reason
            self._ended.set()
        self._stop_clocks()

    def supersede(self) -> None:
        """Watch nobody any longer, because the job was opened again; those present find that out."""
        self._ended.set()
        self._stop_clocks()

    def _stop_clocks(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def _until_ended(self) -> None:
        try:
            async with asyncio.timeout(self._every_s):
                await self._ended.wait()
        except TimeoutError:
            return

    def _arrived(self, party: str) -> None:
        self._streams[party] = self._streams.get(party, 0) + 1
        timer = self._timers.pop(party, None)
        if timer is not None:
            timer.cancel()

    def _left(self, party: str) -> None:
        # A party that comes back before its old stream was noticed to be dead has two of them for a while.
        self._streams[party] -= 1
        if not self._streams[party] and not self._ended.is_set():
            log.info("%s has left; it has %g s to come back", party, self._peer_s)
            self._start_clock(party)

    def _start_clock(self, party: str) -> None:
        if party not in self._timers and not self._ended.is_set():
            loop = asyncio.get_running_loop()
            self._timers[party] = loop.call_later(self._peer_s, self._vanished, party)

    def _vanished(self, party: str) -> None:
        del self._timers[party]
        self._on_vanished(party)
