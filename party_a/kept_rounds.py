"""What a passive party keeps of encrypted regression on its disk, and from where it may go on.

A later attempt repeats at most the last round, with the very same weights: the party's scores, and what it
learns, are those of the first time. Once it has sent its scores in the clear, its weights do not change any
more, whatever is lost afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from common.errors import RemoteProtocolError
from common.runtime.checkpoint import TRAINED, Checkpoint
from common.runtime.kept_data import hold_to
from common.runtime.unfinished import Spent


class KeptRounds:
    """One job's rounds on this party's disk."""

    def __init__(self, checkpoint: Checkpoint, spent: Callable[[], Spent]) -> None:
        """Read what earlier attempts have kept; `spent` says what the job has cost so far.

        Raises:
            StateError: It is damaged.
        """
        self.checkpoint = checkpoint
        self._spent = spent
        self._rounds: dict[int, Any] = checkpoint.rounds()
        self._trained: Any | None = checkpoint.kept(TRAINED)
        self._went_on = not self._rounds and self._trained is None

    @property
    def before(self) -> Spent:
        """What the job had cost when the last of its rounds was kept."""
        last = self._trained or self._rounds.get(max(self._rounds, default=0))
        return Spent.from_json(None if last is None else last["spent"])

    @property
    def has_trained(self) -> bool:
        """Whether the scores have left in the clear: no round may follow."""
        return self._trained is not None

    @property
    def possible(self) -> list[int]:
        """After which rounds this party can go on."""
        if self._trained is not None:
            return [int(self._trained["rounds"])]
        return [*([0] if max(self._rounds, default=0) <= 1 else []), *self._rounds]

    def begin(self, facts: Mapping[str, object]) -> None:
        """Hold a later attempt to the data and the settings of the first.

        Raises:
            DataError: They have changed; rounds on other data would be another job's.
        """
        hold_to(self.checkpoint, facts)

    def keep(self, number: int, state: Mapping[str, object]) -> None:
        """Keep a round, durably, before anybody is told that it was applied."""
        self.checkpoint.keep_round(number, {"state": state, "spent": self._spent().to_json()})

    def keep_trained(self, rounds: int, model: Mapping[str, object]) -> None:
        """Keep the model as it will be, durably, before the scores leave in the clear."""
        if self._trained is None:
            trained = {"rounds": rounds, "model": model, "spent": self._spent().to_json()}
            self.checkpoint.keep(TRAINED, trained)
            self._trained = trained

    def go_on(self, number: int) -> Mapping[str, Any] | None:
        """Return the state after a round, None for the start.

        Raises:
            RemoteProtocolError: The round is not one of those that are possible.
        """
        if number not in self.possible:
            raise RemoteProtocolError(
                f"the job cannot go on after round {number}: that round is not kept here"
            )
        self._went_on = True
        kept = self._rounds.get(number)
        if kept is None and number:
            raise RemoteProtocolError(f"the job cannot go on after round {number}: its state is gone")
        return None if kept is None else kept["state"]

    def require_went_on(self) -> None:
        """Refuse a round that would begin anew what earlier attempts have done.

        Raises:
            RemoteProtocolError: Nobody has said yet after which round the job goes on.
        """
        if not self._went_on:
            raise RemoteProtocolError("this party has kept rounds; nobody has said after which one to go on")
