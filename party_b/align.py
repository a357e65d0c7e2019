"""The active party's part of entity alignment (protos/vfl/v1/align.proto): plain steps, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

from common.crypto.psi import (
    Points,
    Progress,
    blind_ids,
    blind_points,
    common_positions,
    count_common,
    sorting_order,
)
from common.crypto.psi_curve import SecretScalar
from common.data.ids import in_id_order
from common.errors import LocalProtocolError, RemoteProtocolError
from common.types import Ints


def ring(passive: Sequence[str], owner: str) -> tuple[str, ...]:
    """Return the passive parties that a set passes, in this order; `owner` is one of them, or none.

    A passive party's set goes on to the next one and around, the active party's passes all from the first
    on. So no two sets ever reach a passive party under the same scalars, and none of them can compare two
    sets: only the active party, which sees them last, can.
    """
    if owner not in passive:
        return tuple(passive)
    start = passive.index(owner) + 1
    return (*passive[start:], *passive[: start - 1])


class ActiveAlignment:
    """The active party's steps, in their order."""

    def __init__(self, own: str, ids: Sequence[str], scalar: SecretScalar, executor: Executor) -> None:
        """Take the party's name and its ids in file order."""
        self._own = own
        self._ids = ids
        self._scalar = scalar
        self._executor = executor
        self._order: Ints | None = None
        self._finished: dict[str, Points] = {}

    def blind_own(self, progress: Progress) -> Points:
        """Return [k_B]H(id) of all own ids, sorted; they go to the passive parties."""
        blinded = blind_ids(self._ids, self._scalar, self._executor, progress)
        self._order = sorting_order(blinded)
        return blinded[self._order]

    def finish(self, owner: str, points: Points, progress: Progress) -> None:
        """Multiply a passive party's set, which has passed all others, by the last scalar."""
        self._finished[owner] = blind_points(points, self._scalar, self._executor, progress)

    def take_back(self, points: Points) -> None:
        """Take the own set, which has passed every passive party.

        Raises:
            RemoteProtocolError: It is not as large as it was.
        """
        if len(points) != len(self._ids):
            raise RemoteProtocolError("the own blinded ids came back in another number")
        self._finished[self._own] = points

    def common(self) -> Mapping[str, Ints]:
        """Return, by owner, where the common points stand in each set.

        They come in the order of the points under all scalars, which says nothing about any id.
        """
        positions = common_positions(list(self._finished.values()))
        return dict(zip(self._finished, positions, strict=True))

    def shared_by_two(self) -> dict[tuple[str, str], int]:
        """Return how many points two sets share, for each pair: what this party sees beside the result."""
        names = sorted(self._finished, key=lambda name: (name != self._own, name))
        pairs = [(left, right) for at, left in enumerate(names) for right in names[at + 1 :]]
        return {pair: count_common(self._finished[pair[0]], self._finished[pair[1]]) for pair in pairs}

    def own_rows(self, positions: Ints) -> Ints:
        """Return the own rows whose blinded ids stood at these positions when they were sent.

        They come in the order of the ids as text, which every party has for the common ids.
        """
        if self._order is None:
            raise LocalProtocolError("the own ids were not blinded yet")
        return in_id_order(self._ids, self._order[positions])
