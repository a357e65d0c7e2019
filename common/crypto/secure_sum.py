"""Sums of real vectors in which nobody sees a summand (Zhang et al. 2021, Algorithm 1).

step 2   u_l, encoded as fixed point in Z_2^64
step 3   u_l + δ_l, with δ_l uniform on Z_2^64
step 4   Σ (u_l + δ_l) over T1
step 5   Σ δ_l over T2
output   Σ (u_l + δ_l) − Σ δ_l = Σ u_l, exactly

A masked word is uniform whatever u_l is, and the masks cancel exactly: both fail for real-valued masks. A
mask serves one request. Were it used twice, the difference of the two masked vectors would be the
difference of the scores; so a share takes a contribution once, and repeats the same words when asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.crypto.aggregation_trees import Tree, TreeName, TreePair, require_hidden
from common.crypto.entropy import Entropy
from common.errors import LocalProtocolError, NumericError, RemoteProtocolError
from common.types import Floats

Words: TypeAlias = NDArray[np.uint64]
WORD_BYTES = 8

_NUMBERS = 1 << 64  # requests are numbered with 64 bits: half the counter block of the pairwise masks

# Scores keep an absolute precision of 5e-13 and may sum to 8 million.
DEFAULT_SCALE_BITS = 40


@dataclass(frozen=True, slots=True)
class RingFixedPoint:
    """Real numbers as residues modulo 2^64.

    Attributes:
        scale_bits: x becomes round(x · 2^scale_bits).
        parties: How many summands there are; each may use its share of the range, so that no sum wraps.
    """

    scale_bits: int
    parties: int

    @property
    def limit(self) -> float:
        """The absolute value that a summand must stay below."""
        return 2.0 ** (63 - self.scale_bits) / self.parties

    @property
    def error(self) -> float:
        """The most by which a sum of all parties differs from the real one."""
        return self.parties * 2.0 ** -(self.scale_bits + 1)

    def encode(self, values: Floats) -> Words:
        """Return one word for each value.

        Raises:
            NumericError: A value is not finite or not below the limit.
        """
        if values.size and not float(np.abs(values).max()) < self.limit:  # NaN is not below either
            raise NumericError(
                f"a number to be summed is not finite, or not below {self.limit:.3g}",
                advice="lower train.learning_rate, standardize the features, or rescale the label",
            )
        return np.rint(values * 2.0**self.scale_bits).astype(np.int64).view(np.uint64)

    def decode(self, words: Words) -> Floats:
        """Return the real number that each word stands for, between −2^63 and 2^63 of the scale."""
        return words.view(np.int64).astype(np.float64) * 2.0**-self.scale_bits


def fresh_masks(entropy: Entropy, count: int) -> Words:
    """Return independent masks, each uniform on Z_2^64."""
    return np.frombuffer(entropy.octets(WORD_BYTES * count), dtype="<u8").astype(np.uint64)


def words_to_bytes(words: Words) -> bytes:
    """Return words as they travel, little-endian."""
    return words.astype("<u8").tobytes()


def words_from_bytes(data: bytes, length: int) -> Words:
    """Return received words.

    Raises:
        RemoteProtocolError: There are not `length` of them.
    """
    if len(data) != WORD_BYTES * length:
        raise RemoteProtocolError(f"{len(data)} bytes came as a sum of {length} words")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)


@dataclass(frozen=True, slots=True)
class Seat:
    """A party's place in the trees of one root.

    Attributes:
        party: Whose.
        trees: Those that a sum uses: both, or T1 alone when the masks cancel by themselves.
        children: In each, those whose sums the party receives.
    """

    party: str
    trees: Mapping[TreeName, Tree]
    children: Mapping[TreeName, frozenset[str]]

    @classmethod
    def of(cls, party: str, trees: Mapping[TreeName, Tree]) -> Seat:
        """Return a party's place."""
        return cls(party, trees, {name: frozenset(tree.children(party)) for name, tree in trees.items()})

    @property
    def is_root(self) -> bool:
        """Whether the sum arrives here, and our own words go nowhere."""
        return self.trees["T1"].root == self.party


@dataclass(slots=True)
class _PartialSum:
    """What one party passes on over one tree."""

    missing: frozenset[str]  # children whose sums have not come
    total: Words = field(repr=False)
    own_is_in: bool = False

    def add_own(self, words: Words) -> None:
        self.total, self.own_is_in = self.total + words, True


class SumShare:
    """One party's part in one sum."""

    def __init__(self, seat: Seat, scale: RingFixedPoint, mask: Words) -> None:
        self.party = seat.party
        self.length = len(mask)
        self._seat = seat
        self._scale = scale
        self._mask = mask
        nothing = np.zeros(len(mask), dtype=np.uint64)
        self._sums = {name: _PartialSum(found, nothing) for name, found in seat.children.items()}
        self._received: dict[tuple[TreeName, str], Words] = {}
        self.passed_on: set[TreeName] = set()  # trees over which our own sum has left
        if "T2" in self._sums:
            # Masks know nothing of the data: T2 may run before there are scores.
            self._sums["T2"].add_own(mask)

    @property
    def trees(self) -> tuple[TreeName, ...]:
        """The trees this sum uses: both, or T1 alone when the masks cancel by themselves."""
        return tuple(self._seat.trees)

    @property
    def contributed(self) -> bool:
        """Whether our scores are in."""
        return self._sums["T1"].own_is_in

    def parent(self, tree: TreeName) -> str | None:
        """Return who gets our partial sum, None at the root."""
        return self._seat.trees[tree].parents.get(self.party)

    def complete(self, tree: TreeName) -> bool:
        """Return whether our own words and those of all children are in."""
        state = self._sums[tree]
        return state.own_is_in and not state.missing

    def contribute(self, scores: Floats) -> None:
        """Steps 2 and 3: add u + δ.

        Raises:
            LocalProtocolError: Scores were contributed before; the mask would serve twice.
        """
        if self.contributed:
            raise LocalProtocolError(
                "a mask serves one contribution; these scores need a request of their own"
            )
        if scores.shape != (self.length,):
            raise LocalProtocolError(f"{scores.size} scores for a sum of {self.length}")
        self._sums["T1"].add_own(self._scale.encode(scores) + self._mask)

    def absorb(self, tree: TreeName, child: str, words: Words) -> None:
        """Steps 4 and 5: add a child's partial sum; the same one again changes nothing.

        Raises:
            RemoteProtocolError: It is not our child in this tree, or it sent other words before.
        """
        if child not in self._seat.children.get(tree, ()):
            raise RemoteProtocolError(f"{child!r} is not a child of {self.party!r} in {tree}")
        if words.shape != (self.length,):
            raise RemoteProtocolError(f"{child!r} sent {words.size} words for a sum of {self.length}")
        before = self._received.get((tree, child))
        if before is not None and not np.array_equal(before, words):
            raise RemoteProtocolError(f"{child!r} sent two different partial sums of one request")
        if before is None:
            self._received[tree, child] = words
            state = self._sums[tree]
            state.total, state.missing = state.total + words, state.missing - {child}

    def partial_sum(self, tree: TreeName) -> Words:
        """Return what our parent gets.

        Raises:
            LocalProtocolError: A part is missing; what is there might show a single party's words.
        """
        if not self.complete(tree):
            raise LocalProtocolError(f"the partial sum of {tree} is not complete")
        return self._sums[tree].total

    def opened(self) -> Floats:
        """Output, at the root: Σ u, (length,).

        Raises:
            LocalProtocolError: We are not the root, or a part is missing.
        """
        if self.parent("T1") is not None:
            raise LocalProtocolError(f"{self.party!r} is not the root of this sum")
        total = self.partial_sum("T1")
        return self._scale.decode(total - self.partial_sum("T2") if "T2" in self._seat.trees else total)


class SumScheme(Protocol):
    """How one party takes part in sums."""

    def begin(self, root: str, number: int, length: int) -> SumShare:
        """Return our part of the root's request `number`, its mask drawn."""
        ...


class TreeScheme:
    """Algorithm 1: masks are drawn afresh and travel over T2."""

    def __init__(
        self, party: str, pairs: Mapping[str, TreePair], scale: RingFixedPoint, entropy: Entropy
    ) -> None:
        """Take part in the sums of every root in `pairs`, if they hide what they should.

        Raises:
            Refused: A pair shares a subtree, or fails the span test.
        """
        for pair in pairs.values():
            require_hidden(pair)
        trees: dict[str, dict[TreeName, Tree]] = {
            root: {"T1": pair.scores, "T2": pair.masks} for root, pair in pairs.items()
        }
        self._seats = {root: Seat.of(party, both) for root, both in trees.items()}
        self._scale = scale
        self._entropy = entropy

    def begin(self, root: str, number: int, length: int) -> SumShare:
        """Return our part of a request, with masks that nobody saw before."""
        seat = _of(self._seats, root)
        # The root keeps its own words: there is nobody to hide them from.
        hides = not seat.is_root
        mask = fresh_masks(self._entropy, length) if hides else np.zeros(length, dtype=np.uint64)
        return SumShare(seat, self._scale, mask)


class MaskSource(Protocol):
    """Masks of one party that cancel against those of all others."""

    def mask(self, root: str, number: int, length: int) -> Words:
        """Return our mask of the root's request `number`."""
        ...


class PairwiseScheme:
    """Masks that cancel by themselves (`common.crypto.pairwise_masks`): one pass is enough."""

    def __init__(
        self, party: str, trees: Mapping[str, Tree], scale: RingFixedPoint, seeds: MaskSource
    ) -> None:
        """Take part in the sums of every root in `trees`, usually stars."""
        self._seats = {root: Seat.of(party, {"T1": tree}) for root, tree in trees.items()}
        self._scale = scale
        self._seeds = seeds

    def begin(self, root: str, number: int, length: int) -> SumShare:
        """Return our part of a request."""
        seat = _of(self._seats, root)
        return SumShare(seat, self._scale, self._seeds.mask(root, number, length))


class OpenShares:
    """One party's shares by root and number, so that a repeated request finds the words it had.

    Numbers of one root need not come in order, but never return once they have left the window: a number
    that was used and forgotten would use a pairwise mask again.
    """

    def __init__(self, scheme: SumScheme, window: int) -> None:
        """Keep the requests of every root that are fewer than `window` behind its latest."""
        self._scheme = scheme
        self._window = window
        self._open: dict[str, dict[int, SumShare]] = {}
        self._latest: dict[str, int] = {}
        self._unheard: dict[str, set[int]] = {}  # begun by another party's word, before the root's own
        self._lock = Lock()

    def requested(self, root: str, number: int, length: int) -> SumShare:
        """Return our share of what the root asks for, begun if it is new.

        Raises:
            RemoteProtocolError: The number is too old to be new, or came with another length before.
        """
        with self._lock:  # two threads must not begin one request twice
            share = self._found(root, number, length)
            if number > self._latest.get(root, 0):
                self._advance(root, number)
        return share

    def awaited(self, root: str, number: int, length: int) -> SumShare:
        """Return our share of a request that a child answers, perhaps before we have heard of it.

        Only the root's own word moves the window: another party must not be able to make requests look old.

        Raises:
            RemoteProtocolError: As above; or too many requests are named that the root has not made.
        """
        with self._lock:
            share = self._found(root, number, length)
            if number > self._latest.get(root, 0):
                unheard = self._unheard.setdefault(root, set())
                unheard.add(number)
                if len(unheard) > self._window:
                    unheard.remove(number)
                    del self._open[root][number]
                    raise RemoteProtocolError(
                        f"partial sums of more requests of {root!r} came than it may make"
                    )
        return share

    def _advance(self, root: str, latest: int) -> None:
        """Move the window of a root; shares are kept about in the order of their numbers."""
        self._latest[root] = latest
        if unheard := self._unheard.get(root):
            self._unheard[root] = {number for number in unheard if number > latest}
        shares = self._open[root]
        while (oldest := next(iter(shares))) <= latest - self._window:
            del shares[oldest]

    def _found(self, root: str, number: int, length: int) -> SumShare:
        shares = self._open.setdefault(root, {})
        share = shares.get(number)
        if share is None:
            latest = self._latest.get(root, 0)
            if not max(0, latest - self._window) < number < _NUMBERS:
                raise RemoteProtocolError(f"request {number} of {root!r} is too old: the latest is {latest}")
            share = shares[number] = self._scheme.begin(root, number, length)
        if share.length != length:
            raise RemoteProtocolError(f"request {number} of {root!r} came before, with another length")
        return share


_Value = TypeVar("_Value")


def _of(by_root: Mapping[str, _Value], root: str) -> _Value:
    if root not in by_root:
        raise RemoteProtocolError(f"{root!r} is not a root of this job: it may not ask for sums")
    return by_root[root]
