"""Who sent what to whom: where the boxes and arrows of the report's drawing lie."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from common.types import Role

WIDTH = 460
_BOX_WIDTH, _BOX_HEIGHT = 132, 64
_GAP = 19  # Between parallel arrows; the numbers on them have a radius of 9.
_RADIUS, _MARGIN = 10.0, 4.0
_CENTRES: Mapping[Role, tuple[float, float]] = {
    "coordinator": (230.0, 36.0),
    "passive": (72.0, 246.0),
    "active": (388.0, 246.0),
}


@dataclass(frozen=True, slots=True)
class Flow:
    """One kind of message of the run.

    Attributes:
        sender: Party name.
        receiver: Party name.
        what: The content, in plain words.
        amount: How much of it, in plain words.
        protection: `encrypted`, `masked` or `clear`.
    """

    sender: str
    receiver: str
    what: str
    amount: str
    protection: str


@dataclass(frozen=True, slots=True)
class Box:
    """One role; several passive parties share a box."""

    left: float
    top: float
    width: float
    height: float
    title: str
    subtitle: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """All flows of one protection from one role to another."""

    number: int
    protection: str
    start: tuple[float, float]
    end: tuple[float, float]
    label: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Diagram:
    """Boxes, arrows, and the flows with the number of their arrow.

    Attributes:
        top: Where the drawing begins: no line is left for a role that the job has not.
    """

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    flows: tuple[tuple[int, Flow], ...]
    top: float
    height: float
    width: int = WIDTH


def draw(parties: Mapping[str, Role], flows: Iterable[Flow]) -> Diagram:
    """Lay out the roles as a triangle, with parallel arrows between each two of them."""
    numbers: dict[tuple[Role, Role, str], int] = {}
    numbered = []
    for flow in flows:
        key = (parties[flow.sender], parties[flow.receiver], flow.protection)
        numbered.append((numbers.setdefault(key, len(numbers) + 1), flow))
    lanes: dict[frozenset[Role], list[tuple[Role, Role, str]]] = {}
    for key in numbers:
        if key[0] != key[1]:  # parties of one role share a box: what they send each other is in the list only
            lanes.setdefault(frozenset(key[:2]), []).append(key)
    arrows = [
        _arrow(numbers[key], key, (lane - (len(keys) - 1) / 2) * _GAP)
        for keys in lanes.values()
        for lane, key in enumerate(keys)
    ]
    boxes = tuple(_box(role, parties) for role in _CENTRES if role in parties.values())
    numbered.sort(key=lambda pair: pair[0])
    extents = [(box.top - _MARGIN, box.top + box.height + _MARGIN) for box in boxes]
    extents += [(arrow.label[1] - _RADIUS, arrow.label[1] + _RADIUS) for arrow in arrows]
    top = min(above for above, _ in extents)
    height = max(below for _, below in extents) - top
    return Diagram(boxes, tuple(arrows), tuple(numbered), top, height)


def _box(role: Role, parties: Mapping[str, Role]) -> Box:
    x, y = _CENTRES[role]
    names = [party for party, part in parties.items() if part == role]
    title = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    subtitle = {"passive": "features", "active": "features, labels", "coordinator": "private key"}[role]
    return Box(x - _BOX_WIDTH / 2, y - _BOX_HEIGHT / 2, _BOX_WIDTH, _BOX_HEIGHT, title, subtitle)


def _arrow(number: int, key: tuple[Role, Role, str], offset: float) -> Arrow:
    sender, receiver, protection = key
    (x1, y1), (x2, y2) = _CENTRES[sender], _CENTRES[receiver]
    length = math.hypot(x2 - x1, y2 - y1)
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    # The side to which lanes are counted must not turn round with the direction of the arrow.
    turn = 1.0 if (dx, dy) > (0.0, 0.0) else -1.0
    shift_x, shift_y = -dy * offset * turn, dx * offset * turn
    out = _edge(dx, dy, shift_y)
    into = length - _edge(dx, dy, -shift_y)

    def point(distance: float) -> tuple[float, float]:
        return round(x1 + dx * distance + shift_x, 1), round(y1 + dy * distance + shift_y, 1)

    # A number stands nearer to the sender, so that those of two directions do not meet.
    return Arrow(number, protection, point(out), point(into), point(out + 0.34 * (into - out)))


def _edge(dx: float, dy: float, shift_y: float) -> float:
    """Return how far from its centre an arrow leaves a box: by the side if level, else by top or bottom."""
    margin = 5.0
    if dy == 0.0:
        return _BOX_WIDTH / 2 + margin
    return (_BOX_HEIGHT / 2 + margin - math.copysign(1.0, dy) * shift_y) / abs(dy)
