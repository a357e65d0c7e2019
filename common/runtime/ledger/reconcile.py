"""Holds the ledgers of two parties against each other: what one sent, the other must have received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import ConfigError
from common.runtime.ledger.entry import Entry
from common.runtime.ledger.reading import entries_in


@dataclass(frozen=True, slots=True)
class Difference:
    """Messages of one type that only one of two ledgers has.

    Attributes:
        sender: Who sent them, or should have.
        receiver: Who received them, or should have.
        noted_by: In whose ledger they are.
        count: How many.
    """

    sender: str
    receiver: str
    noted_by: str
    job: str
    message: str
    count: int

    def sentence(self) -> str:
        """Return the difference in plain words."""
        name, times = self.message.rpartition(".")[2], f"{self.count:,} × " if self.count > 1 else ""
        job = f"job {self.job}" if self.job else "outside jobs"
        if self.noted_by == self.sender:
            return f"{times}{name}, {job}: sent by {self.sender}, not received by {self.receiver}"
        return f"{times}{name}, {job}: received by {self.receiver}, not sent by {self.sender}"


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Two ledgers held against each other.

    Attributes:
        own: The party of the first one, `other` of the second.
        equal: Messages that are in both, byte for byte.
        differences: All others, by job and message.
    """

    own: str
    other: str
    equal: int
    differences: tuple[Difference, ...]


_Key = tuple[str, str, str]


def reconcile(own: Path, other: Path, job: str | None = None) -> Reconciled:
    """Compare two parties' ledgers, or one job in them.

    Args:
        own: A state directory, a ledger, or a file of its lines.
        other: The other party's, likewise; it may hold the entries about our messages alone.
        job: A job id; None compares everything between the two.

    Raises:
        LedgerError: One of them is no ledger.
        ConfigError: They are the same party's.
    """
    ours, theirs = _of(own, job), _of(other, job)
    if not ours or not theirs:
        empty = own if not ours else other
        raise ConfigError("no entry to compare", where=str(empty), advice="is the job's id right?")
    us, them = ours[0].party, theirs[0].party
    if us == them:
        raise ConfigError(f"both ledgers are {us}'s", where=str(other), advice="name the other party's")
    equal, differences = 0, []
    for sender, sent, receiver, received in ((us, ours, them, theirs), (them, theirs, us, ours)):
        left = _counted(sent, "sent", receiver)
        come = _counted(received, "received", sender)
        equal += (left & come).total()
        for noted_by, rest in ((sender, left - come), (receiver, come - left)):
            for (job_id, message), count in _by_message(rest).items():
                differences.append(Difference(sender, receiver, noted_by, job_id, message, count))
    return Reconciled(us, them, equal, tuple(differences))


def _of(path: Path, job: str | None) -> Sequence[Entry]:
    return [entry for entry in entries_in(path) if job in (None, entry.job)]


def _counted(entries: Iterable[Entry], direction: str, peer: str) -> Counter[_Key]:
    return Counter(
        (entry.job, entry.message, entry.digest)
        for entry in entries
        if (entry.direction, entry.peer) == (direction, peer)
    )


def _by_message(keys: Counter[_Key]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for (job, message, _), count in keys.items():
        found[job, message] += count
    return found
