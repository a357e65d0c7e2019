"""Tells broken sessions that lead on from those that never will (ADR 0014)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Headway:
    """Sessions of one attempt that broke off, one after another.

    Parties that are all present and yet cannot reach each other would begin sessions for ever.

    Attributes:
        patience_s: How long nothing may be achieved.
    """

    patience_s: float
    _standing: tuple[int, int] = (-1, -1)
    _since_s: float = 0.0

    def broken_off(self, standing: tuple[int, int], now_s: float) -> bool:
        """Note that a session broke off; return whether another one makes sense.

        Args:
            standing: Epochs that were measured, and updates that were applied.
            now_s: On a clock that never goes back.
        """
        if standing != self._standing:
            self._standing, self._since_s = standing, now_s
        return now_s - self._since_s <= self.patience_s
