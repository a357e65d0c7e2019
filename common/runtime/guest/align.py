"""The part of entity alignment of a party that does not conduct it (protos/vfl/v1/align.proto): plain steps.

The scalar lives as long as the job. A party multiplies one set for each owner and no second one: whoever
could choose more points could have guessed ids blinded, and look them up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from common.crypto.psi import MAX_IDS, Points, Progress, blind_ids, blind_points, sorting_order
from common.crypto.psi_curve import SecretScalar
from common.data.ids import in_id_order
from common.errors import Refused, RemoteProtocolError
from common.types import Ints


@dataclass(frozen=True, slots=True, eq=False)
class SortedSet:
    """A set as it left this party.

    Attributes:
        points: Sorted.
        before: Where each of them stood before the sorting; may be seen by this party alone until the
            common points are known.
        source: Digest of what the set was made from, so that a retry is told from a second question.
    """

    points: Points = field(repr=False)
    before: Ints = field(repr=False)
    source: bytes


class PassiveAlignment:
    """The passive party's steps, each of which may be repeated with the same input and no other."""

    def __init__(
        self, ids: Sequence[str], scalar: SecretScalar, executor: Executor, min_intersection: int
    ) -> None:
        """Take the party's ids in file order; fewer than `min_intersection` common ones are not shown."""
        self._ids = ids
        self._scalar = scalar
        self._executor = executor
        self._min_intersection = min_intersection
        self._own: SortedSet | None = None
        self._others: dict[str, SortedSet] = {}
        self._revealed: dict[str, bytes] = {}
        self._common: Ints | None = None

    def blind_own(self, progress: Progress) -> Points:
        """Return [k_A]H(id) of all own ids, sorted."""
        if self._own is None:
            self._own = _sorted(blind_ids(self._ids, self._scalar, self._executor, progress), b"")
        return self._own.points

    def blind_other(self, owner: str, points: Points, progress: Progress) -> Points:
        """Return [k_A]P of another party's set, sorted: nobody can tell which point became which.

        Raises:
            RemoteProtocolError: A point is not on the curve, or this is a second set of one owner.
        """
        check_count(len(points))
        source = hashlib.sha256(points.tobytes()).digest()
        known = self._others.get(owner)
        if known is None:
            sorting_order(points)  # A point that comes twice is refused before any work.
            known = _sorted(blind_points(points, self._scalar, self._executor, progress), source)
            self._others[owner] = known
        if known.source != source:
            raise RemoteProtocolError(f"a second set of {owner}'s ids came; one is blinded in a job")
        return known.points

    def reveal(self, owner: str, positions: Ints) -> Ints:
        """Return where common points of another party's set stood before they were sorted here.

        Raises:
            Refused: They are fewer than this party's policy allows.
            RemoteProtocolError: There is no such set, or the positions are not distinct ones in it, or
                others of this set were asked for before.
        """
        blinded = self._others.get(owner)
        if blinded is None:
            raise RemoteProtocolError(f"the ids of {owner} were not blinded here")
        self._check(positions, len(blinded.points))
        asked = hashlib.sha256(positions.tobytes()).digest()
        if self._revealed.setdefault(owner, asked) != asked:
            raise RemoteProtocolError(f"other common ids of {owner} were named before")
        return blinded.before[positions]

    def set_common(self, positions: Ints) -> Ints:
        """Return the own rows that all parties have, in the order of the ids as text.

        All parties have the same common ids, so all get the same order, the same for every scalar.

        Raises:
            Refused: They are fewer than this party's policy allows.
            RemoteProtocolError: The positions are not distinct ones among the own ids, or others were
                named before.
        """
        if self._own is None:
            raise RemoteProtocolError("the own ids were not blinded yet")
        self._check(positions, len(self._own.points))
        rows = in_id_order(self._ids, self._own.before[positions])
        if self._common is not None and not np.array_equal(self._common, rows):
            raise RemoteProtocolError("other common ids were named before")
        self._common = rows
        return rows

    def _check(self, positions: Ints, count: int) -> None:
        if len(positions) < self._min_intersection:
            raise Refused(
                f"{len(positions)} common ids are fewer than the {self._min_intersection} that the policy "
                "asks for, so it is not shown which they are",
                advice="policy.min_intersection and policy.min_rows of the party that refuses set this.",
            )
        if len(positions) and not (positions.min() >= 0 and positions.max() < count):
            raise RemoteProtocolError("a common id is said to stand beyond the end of its set")
        if len(np.unique(positions)) < len(positions):
            raise RemoteProtocolError("one id is named as common twice")


def check_count(count: int) -> None:
    """Refuse a set that is larger than a party will hold for another.

    Raises:
        RemoteProtocolError: It is.
    """
    if count > MAX_IDS:
        raise RemoteProtocolError(f"a set of {count} ids is announced; {MAX_IDS} are the most")


def _sorted(points: Points, source: bytes) -> SortedSet:
    order = sorting_order(points)
    return SortedSet(points[order], order, source)
