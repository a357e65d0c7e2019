"""How many rows a day this party scores for others: counted by peer, on the disk before anything is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from common.errors import Refused
from common.runtime.state import StateError, write_atomically

_FOLDER = "scored_rows"


def today_utc() -> str:
    """Return today's date in UTC: a day of the count, the same wherever a party's clock stands."""
    return datetime.now(UTC).date().isoformat()


class DailyQuota:
    """The count of one party; a restart of its service does not reset it."""

    def __init__(self, state: Path, rows_per_day: int, today: Callable[[], str] = today_utc) -> None:
        """`today` returns an ISO date."""
        self._folder = state / _FOLDER
        self._rows_per_day = rows_per_day
        self._today = today
        self._spending = asyncio.Lock()
        # By peer: the day, and rows that are counted on the disk already but were not sent yet.
        self._ahead: dict[str, tuple[str, int]] = {}

    def left(self, peer: str) -> int:
        """Return how many rows may still be scored for a peer today.

        Raises:
            StateError: The count cannot be read; then nothing may be scored.
        """
        day, used = self._count(peer)
        return max(0, self._rows_per_day - used + self._counted_ahead(peer, day))

    async def spend(self, peer: str, rows: int, ahead: int = 0) -> None:
        """Count rows that are about to be sent to a peer.

        Args:
            peer: The active party.
            rows: How many.
            ahead: How many more may be counted along with them, if that many are left, for the next calls;
                a restart loses what was not used of these. Spares each of many small calls its own write.

        Raises:
            Refused: They are more than are left today; nothing is counted then.
            StateError: The count cannot be kept, so nothing may be sent.
        """
        async with self._spending:
            day, counted = self._ahead.get(peer, ("", 0))
            if counted >= rows and day == self._today():
                self._ahead[peer] = day, counted - rows
            else:
                await asyncio.to_thread(self._spend, peer, rows, ahead)

    def _spend(self, peer: str, rows: int, ahead: int) -> None:
        day, used = self._count(peer)
        used -= self._counted_ahead(peer, day)
        left = self._rows_per_day - used - rows
        if left < 0:
            raise Refused(
                f"{rows:,} rows are to be scored; the policy allows {self._rows_per_day:,} a day for {peer}, "
                f"of which {max(0, left + rows):,} are left",
                advice="Wait for tomorrow (UTC), or ask for a higher policy.prediction.rows_per_day.",
            )
        ahead = min(ahead, left)
        path = self._path(peer)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, json.dumps({"day": day, "rows": used + rows + ahead}).encode())
        except OSError as exc:
            raise StateError.unwritable(path, exc) from exc
        self._ahead[peer] = day, ahead

    def _counted_ahead(self, peer: str, day: str) -> int:
        on, rows = self._ahead.get(peer, ("", 0))
        return rows if on == day else 0

    def _count(self, peer: str) -> tuple[str, int]:
        """Return the day that counts, and the rows that were scored on it."""
        path, today = self._path(peer), self._today()
        try:
            kept = json.loads(path.read_bytes())
            day, rows = str(kept["day"]), int(kept["rows"])
        except FileNotFoundError:
            return today, 0
        except (OSError, ValueError, KeyError, TypeError) as exc:
            # A count that is lost must not be taken for none.
            raise StateError("the count of scored rows cannot be read", where=str(path)) from exc
        # A clock that was set back does not begin a new day.
        return (today, 0) if today > day else (day, rows)

    def _path(self, peer: str) -> Path:
        return self._folder / f"{peer}.json"
