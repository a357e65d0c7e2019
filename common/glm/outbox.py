"""What a dominator has sent and not everybody has applied: the bound on staleness, and what to send again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from common.errors import LocalProtocolError, RemoteProtocolError
from common.glm.asynchronous import Update


@dataclass(frozen=True, slots=True)
class OutboxState:
    """What a restart needs.

    Attributes:
        sent: Number of the last update.
        kept: Updates that some party's disk does not show yet, by number.
    """

    sent: int
    kept: Mapping[int, Update]


class Outbox:
    """One dominator's updates on their way to all other parties."""

    def __init__(self, collaborators: Collection[str], max_staleness: int) -> None:
        """Begin empty; the bound is at least 1, or nothing could ever be sent."""
        if max_staleness < 1 or not collaborators:
            raise LocalProtocolError("a dominator needs collaborators and a max_staleness of at least 1")
        self.max_staleness = max_staleness
        self._applied = dict.fromkeys(sorted(collaborators), 0)
        self._durable = dict.fromkeys(sorted(collaborators), 0)
        self._kept: dict[int, Update] = {}
        self.sent = 0

    @property
    def in_flight(self) -> int:
        """Updates that the slowest party has not applied."""
        return self.sent - min(self._applied.values())

    def kept(self, number: int) -> Update | None:
        """Return an update that some party's disk does not show yet."""
        return self._kept.get(number)

    @property
    def oldest_kept(self) -> int:
        """Number of the oldest update that some party's disk does not show yet."""
        return min(self._kept, default=self.sent + 1)

    @property
    def slowest(self) -> str:
        """The party that is furthest behind; the first by name among equals."""
        return min(self._applied, key=lambda party: self._applied[party])

    def room(self, open_requests: int) -> bool:
        """Return whether one more request may be sent, besides those open."""
        return self.in_flight + open_requests < self.max_staleness

    def put(self, update: Update) -> None:
        """Keep an update before it is sent.

        Raises:
            LocalProtocolError: It is not the next one.
        """
        if update.number != self.sent + 1:
            raise LocalProtocolError(f"update {update.number} cannot follow {self.sent}")
        self._kept[update.number] = update
        self.sent = update.number

    def acknowledge(self, party: str, applied: int, durable: int) -> None:
        """Take a party's word on what it has applied, and what of that its disk shows.

        A party that comes back after a crash stands where its disk does: its numbers may fall.

        Raises:
            RemoteProtocolError: It cannot be true.
        """
        if party not in self._applied or not 0 <= durable <= applied <= self.sent:
            raise RemoteProtocolError(f"{party!r} acknowledged updates that it cannot have got")
        if durable < self._durable[party]:
            raise RemoteProtocolError(f"{party!r} has lost updates that it had acknowledged as written")
        self._applied[party], self._durable[party] = applied, durable
        oldest = min(self._durable.values())
        for number in [kept for kept in self._kept if kept <= oldest]:
            del self._kept[number]

    def after(self, number: int) -> list[Update]:
        """Return the updates after a number in their order, for a party that stands there.

        Raises:
            RemoteProtocolError: Some of them have been dropped, because the party had acknowledged them.
        """
        wanted = range(number + 1, self.sent + 1)
        if any(each not in self._kept for each in wanted):
            raise RemoteProtocolError(f"updates after {number} are asked for again, but were acknowledged")
        return [self._kept[each] for each in wanted]

    def state(self) -> OutboxState:
        """Return what a restart needs."""
        return OutboxState(self.sent, dict(self._kept))

    def restore(self, state: OutboxState) -> None:
        """Go back to a state; where the parties stand they say themselves."""
        self.sent = state.sent
        self._kept = dict(state.kept)
        floor = min(self._kept, default=state.sent + 1) - 1
        self._applied = dict.fromkeys(self._applied, floor)
        self._durable = dict.fromkeys(self._durable, floor)

    def clear(self) -> None:
        """Forget everything: numbers begin at 1 again."""
        self.restore(OutboxState(0, {}))
