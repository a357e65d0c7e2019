"""The engine of the party that keeps the epochs in VFB²: it hears what everybody answers (ADR 0014)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from common.errors import RemoteProtocolError
from common.glm.asynchronous import EpochEnd, ReferencePart
from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.vfb2.journal import Journal
from common.runtime.vfb2.place import Place
from common.runtime.vfb2.wire import reference_word
from party_b.asynchronous.dominating import DominatorEngine
from party_b.vfb2 import Dominator


@dataclass(slots=True)
class Answers:
    """What the parties have answered the keeper, by party: numbers of epochs and updates, −1 for none."""

    frozen: dict[str, int] = field(default_factory=dict)
    referred: dict[str, int] = field(default_factory=dict)
    halted: dict[str, int] = field(default_factory=dict)
    started_over: dict[str, int] = field(default_factory=dict)
    finished: dict[str, pb.Finished] = field(default_factory=dict)
    derailed: asyncio.Future[str] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )  # who gave a step size up


class KeeperEngine(DominatorEngine):
    """The engine of the party that keeps the epochs: it hears the answers, its own among them."""

    def __init__(self, place: Place, role: Dominator, journal: Journal) -> None:
        """Take a role that stands where the journal says."""
        super().__init__(place, role, journal)
        self.answers = Answers()
        self.broken: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        self._news = asyncio.Event()

    def begin_answers(self, standing: Mapping[str, pb.TrainingPrepared]) -> None:
        """Begin a session with what every guest says of where it stands."""
        self.answers = Answers(
            frozen={name: told.epoch - 1 for name, told in standing.items()},
            referred={name: told.epoch - 1 for name, told in standing.items() if not told.awaits_reference},
        )
        self.broken = asyncio.get_running_loop().create_future()

    def interrupted(self, peer: str) -> None:
        """Note that our stream to a party broke."""
        self._broke_off(self.place.party, peer)

    def _broke_off(self, one: str, other: str) -> None:
        if not self.broken.done():
            self.broken.set_result((one, other))

    def say(self, word: pb.CollaboratorWord) -> None:
        """Answer ourselves."""
        self.on_answer(self.place.party, word.WhichOneof("word"), word)

    def on_answer(self, peer: str, kind: str | None, word: pb.CollaboratorWord) -> None:
        """Note an answer."""
        answers = self.answers
        if kind == "frozen":
            answers.frozen[peer] = word.frozen.epoch
        elif kind == "referred":
            answers.referred[peer] = word.referred.epoch
        elif kind == "halted" and peer in self.place.limits.dominators:
            answers.halted[peer] = word.halted.last
        elif kind == "started_over":
            answers.started_over[peer] = word.started_over.trial
        elif kind == "derailed":
            if word.derailed.trial == self._trial and not answers.derailed.done():
                answers.derailed.set_result(peer)
        elif kind == "finished":
            answers.finished[peer] = word.finished
        elif kind == "interrupted":
            lost = word.interrupted.peer
            self._broke_off(peer, lost if lost in self.place.job.members else "another party")
        else:
            raise RemoteProtocolError(f"{peer} may not say {kind!r} to the keeper")

    def progressed(self) -> None:
        """Go on, and let the keeper look."""
        super().progressed()
        self._news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds that updates or answers bring about."""
        while not holds():
            self._news.clear()
            await self._news.wait()

    def tell(self, word: pb.DominatorWord) -> None:
        """Say something to everybody else."""
        self._send(word)

    def tell_one(self, peer: str, word: pb.DominatorWord) -> None:
        """Say something to one party."""
        self._links[peer].put(word)

    def halt(self) -> None:
        """Let every dominator halt, ourselves included."""
        self.answers.halted.clear()
        for peer in self.place.limits.dominators[1:]:
            self.tell_one(peer, pb.DominatorWord(halt=pb.Halt()))
        self._on_halt()
        self._after()

    def go(self, epoch: int) -> None:
        """Let every dominator begin updates, ourselves included."""
        for peer in self.place.limits.dominators[1:]:
            self.tell_one(peer, pb.DominatorWord(go=pb.Go(epoch=epoch)))
        self._on_go(epoch)
        self._after()

    def begin_trial(self, trial: int, step: float) -> None:
        """Go back to the start ourselves, when all others have."""
        self.answers.derailed = asyncio.get_running_loop().create_future()
        self.answers.frozen = dict.fromkeys(self.place.job.guests, 0)
        self.give_up()
        self._on_start_over(pb.StartOver(trial=trial, step=step))

    def go_alone(self, rows: int) -> None:
        """Begin updates of so many rows, while the other dominators wait.

        As many may be in flight as all dominators together will have: a step that bears the staleness of one
        alone would be too large for training.
        """
        together = 1 if self._sync else len(self.place.limits.dominators)
        self.role.outbox.max_staleness = self._most_in_flight * together
        self._most_rows = rows
        self._going, self._halting = True, False
        self.role.resume()
        self._after()

    def give_up(self) -> None:
        """Begin no more updates, and wait for no sum any more."""
        self._on_halt()
        self._halting = False
        self._asked.clear()
        for waiting in self._sums.values():
            waiting.cancel()
        self._sums.clear()

    def reference_words(self, parts: Sequence[ReferencePart]) -> list[pb.DominatorWord]:
        """Return SVRG's θ̃ as the others get it."""
        return [reference_word(part) for part in parts]

    def refer_to(self, parts: Sequence[ReferencePart]) -> None:
        """Take SVRG's θ̃ ourselves, and keep it."""
        for part in parts:
            self.collaboration.absorb_reference(part)
        word = pb.CollaboratorWord(referred=pb.Referred(epoch=parts[0].epoch))
        self._keep(lambda: self.say(word))

    def finish(self, end: EpochEnd) -> None:
        """Let everybody finish with the updates of a cut, ourselves included."""
        self.tell(pb.DominatorWord(finish=pb.Finish(epoch=end.epoch, cut=dict(end.cut))))
        self._finish = end
        self._after()
