"""What asynchronous parties tell each other, and how far apart they may drift (Zhang et al. 2021, BAPA).

A dominator asks for scores of a batch (`ScoreRequest`), computes θ, and sends it to everybody (`Update`).
Updates of one dominator are numbered 1, 2, 3, … without a gap; requests have numbers of their own, which
only grow, because a request that got no answer leads to no update.

Staleness is bounded at the dominator: updates and open requests that some party has not applied are never
more than `max_staleness`. A party that is slow, or away, stops the others there and nowhere earlier.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal, TypeAlias

import numpy as np

from common.errors import LocalProtocolError, RemoteProtocolError
from common.types import Floats, Ints

Asked: TypeAlias = Literal["scores", "frozen_scores", "frozen_penalty", "test_scores"]
Cut: TypeAlias = Mapping[str, int]  # how many updates of each dominator

_DIGEST_SPACE = 1 << 256
# A party may have applied, and said so, what a crash takes from its disk; dominators send it again beside
# what they may have in flight. A flush of the disk is behind by far fewer.
_LOST_BY_A_CRASH = 1024


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """A sum that an active party asks for.

    Attributes:
        root: The active party, who gets the sum.
        number: Grows over all requests of the root, also over its restarts.
        asked: Scores with the blocks as they are, or as they were frozen; or the penalties of frozen blocks;
            or scores of test rows, with the final blocks.
        epoch: Whose end the blocks were frozen at; for scores as they are, the epoch under way.
        rows: Distinct, (b,); none when penalties are asked for.
    """

    root: str
    number: int
    asked: Asked
    epoch: int
    rows: Ints = field(repr=False)

    @property
    def length(self) -> int:
        """Numbers in the answer."""
        return 1 if self.asked == "frozen_penalty" else len(self.rows)


@dataclass(frozen=True, slots=True)
class Update:
    """θ and row numbers of one dominated update: all that a collaborator needs.

    Attributes:
        dominator: Who computed θ.
        number: From 1, without a gap.
        epoch: The epoch it was begun in, from 1; it decides the step size.
        request: Number of the request that brought the scores.
        rows: Distinct, (b,).
        thetas: ∂loss/∂z at each of them, (b,). They show labels and scores to whoever knows the loss.
    """

    dominator: str
    number: int
    epoch: int
    request: int
    rows: Ints = field(repr=False)
    thetas: Floats = field(repr=False)

    def fingerprint(self) -> int:
        """Return SHA-256 over everything that decides what the update does."""
        return _fingerprint(self, self.thetas.astype("<f8").tobytes())


@dataclass(frozen=True, slots=True)
class UnseenUpdate(Update):
    """An update whose θ only its dominator has; others have none, (0,), and get Σ θ_i x_i of their columns.

    Two parties compare what they have applied, and a guess at θ must not be testable against that.
    """

    def fingerprint(self) -> int:
        """Return SHA-256 over everything but θ."""
        return _fingerprint(self, b"")


def _fingerprint(update: Update, thetas: bytes) -> int:
    head = f"{update.dominator}|{update.number}|{update.epoch}|{len(update.rows)}|".encode()
    return int.from_bytes(hashlib.sha256(head + update.rows.astype("<i8").tobytes() + thetas).digest(), "big")


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Where an epoch ends: every party freezes its block once it has applied the updates of the cut.

    Attributes:
        epoch: From 0: the end of epoch 0 is the start.
        cut: Updates of each dominator that belong to it or to an earlier one.
    """

    epoch: int
    cut: Cut


@dataclass(frozen=True, slots=True)
class ReferencePart:
    """SVRG's θ̃ of consecutive rows.

    Attributes:
        epoch: At whose end the blocks were frozen.
        start: Number of the first row.
        thetas: (k,).
    """

    epoch: int
    start: int
    thetas: Floats = field(repr=False)


def check_batch(rows: Ints, total: int) -> Ints:
    """Return received row numbers.

    Raises:
        RemoteProtocolError: There are none, one is not among `total` rows, or one comes twice.
    """
    ordered = rows.copy()
    ordered.sort()
    if not ordered.size or ordered[0] < 0 or ordered[-1] >= total:
        raise RemoteProtocolError(f"a batch names rows that are not among the {total} training rows")
    if (ordered[1:] == ordered[:-1]).any():
        raise RemoteProtocolError("a batch names a row twice")
    return rows


def check_thetas(thetas: Floats, length: int) -> Floats:
    """Return received derivatives.

    Raises:
        RemoteProtocolError: There are not `length` of them, or one is not finite.
    """
    if thetas.shape != (length,) or not np.isfinite(thetas).all():
        raise RemoteProtocolError(f"a batch of {length} rows needs as many finite derivatives")
    return thetas


def check_sums(sums: Floats, columns: int) -> Floats:
    """Return Σ θ_i x_i of our columns.

    Raises:
        RemoteProtocolError: There is not one finite number for each column.
    """
    if sums.shape != (columns,) or not np.isfinite(sums).all():
        raise RemoteProtocolError(f"sums for {columns} columns must be as many finite numbers")
    return sums


@dataclass(frozen=True, slots=True)
class ProgressState:
    """What a restart needs of a party's progress.

    Attributes:
        counts: Updates of each dominator applied without a gap.
        ahead: Numbers applied beyond a gap.
        rows: Rows in all of them.
        digest: Sum of their fingerprints.
    """

    counts: Cut
    ahead: Mapping[str, frozenset[int]]
    rows: int
    digest: int


class Progress:
    """Which updates of every dominator one party has applied; several threads apply them."""

    def __init__(self, dominators: Collection[str], window: int) -> None:
        """Begin with none.

        Args:
            dominators: All active parties.
            window: How far a number may be beyond those applied without a gap: `max_staleness`.
        """
        self._window = window
        self._lost = 0
        self._counts = dict.fromkeys(sorted(dominators), 0)
        self._ahead: dict[str, set[int]] = {name: set() for name in self._counts}
        self._claimed: set[tuple[str, int]] = set()
        self._rows = 0
        self._digest = 0
        self._total = 0
        self._read_at: dict[tuple[str, int], int] = {}
        self.staleness: Counter[int] = Counter()
        self._lock = Lock()

    @property
    def window(self) -> int:
        """How far a number may be ahead: after a restart by what the crash may have cost, besides."""
        return self._window + self._lost

    @property
    def counts(self) -> dict[str, int]:
        """Updates of each dominator applied without a gap."""
        with self._lock:
            return dict(self._counts)

    def count_of(self, dominator: str) -> int:
        """Return how many updates of one dominator are applied without a gap."""
        return self._counts.get(dominator, 0)

    @property
    def rows(self) -> int:
        """Rows in all updates applied."""
        return self._rows

    @property
    def applied(self) -> int:
        """Updates applied since this process took up the job, of all dominators."""
        return self._total

    @property
    def digest(self) -> str:
        """The same at two parties exactly if they applied the same updates, in whatever order."""
        return f"{self._digest:064x}"

    def covers(self, cut: Cut) -> bool:
        """Return whether all updates of a cut are applied."""
        return all(self._counts.get(name, 0) >= count for name, count in cut.items())

    def equals(self, cut: Cut) -> bool:
        """Return whether exactly the updates of a cut are applied, and none is under way."""
        with self._lock:
            complete = {name: cut.get(name, 0) for name in self._counts}
            return self._counts == complete and not self._claimed and not any(self._ahead.values())

    def note_read(self, root: str, request: int) -> None:
        """Remember when the scores of a request were taken."""
        with self._lock:
            self._read_at[root, request] = self._total
            while len(self._read_at) > 2 * self._window * len(self._counts):
                del self._read_at[next(iter(self._read_at))]  # a request that led to no update

    def claim(self, update: Update) -> bool:
        """Return whether this update is still to be applied, by the caller and nobody else.

        Raises:
            RemoteProtocolError: Nobody of that name dominates, or it is further ahead than it may be.
        """
        key = (update.dominator, update.number)
        with self._lock:
            count = self._counts.get(update.dominator)
            if count is None:
                raise RemoteProtocolError(f"{update.dominator!r} does not dominate in this job")
            if not 1 <= update.number <= count + self.window:
                raise RemoteProtocolError(
                    f"update {update.number} of {update.dominator!r} came after {count}: "
                    f"more than {self.window} are in flight"
                )
            known = update.number <= count or update.number in self._ahead[update.dominator]
            if known or key in self._claimed:
                return False
            self._claimed.add(key)
            return True

    def unclaim(self, update: Update) -> None:
        """Give a claimed update back: it has not been applied."""
        with self._lock:
            self._claimed.discard((update.dominator, update.number))

    def settle(self, update: Update) -> None:
        """Note that a claimed update has been applied."""
        fingerprint, name = update.fingerprint(), update.dominator
        with self._lock:
            self._claimed.remove((name, update.number))
            self._ahead[name].add(update.number)
            while self._counts[name] + 1 in self._ahead[name]:
                self._counts[name] += 1
                self._ahead[name].remove(self._counts[name])
            self._rows += len(update.rows)
            self._digest = (self._digest + fingerprint) % _DIGEST_SPACE
            read_at = self._read_at.pop((name, update.request), None)
            if read_at is not None:
                self.staleness[self._total - read_at] += 1
            self._total += 1

    def state(self) -> ProgressState:
        """Return what has been applied.

        Raises:
            LocalProtocolError: A thread is applying an update: neither with it nor without it would be true.
        """
        with self._lock:
            if self._claimed:
                raise LocalProtocolError("an update is being applied: the state is not a consistent one")
            ahead = {name: frozenset(numbers) for name, numbers in self._ahead.items()}
            return ProgressState(dict(self._counts), ahead, self._rows, self._digest)

    def restore(self, state: ProgressState) -> None:
        """Go back to a state; the histogram stays."""
        with self._lock:
            self._counts = dict(state.counts)
            self._ahead = {name: set(numbers) for name, numbers in state.ahead.items()}
            self._claimed.clear()
            self._read_at.clear()
            self._rows, self._digest = state.rows, state.digest
            self._lost = _LOST_BY_A_CRASH
