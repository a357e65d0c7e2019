"""Stage 1: one run of a split network's training, from wherever all parties stand to its best epoch."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

from common.nets.attacks import GradientAttacks
from common.nets.batches import epoch_batches
from common.nets.protect import Singles
from common.nets.recipe import Patience
from common.nets.scores import EarlyStopping, Scores, scores_of
from common.rpc.pb import splitnn_pb2 as net
from common.runtime.epoch_store import EpochStore
from common.runtime.net_design import Parts
from common.runtime.net_halves import Half, new_top, restored_top
from common.runtime.stopwatch import Stopwatch
from common.types import Floats, Ints
from party_b.networks.client import EpochLine, NetClient
from party_b.splitnn import ActiveSplit

P = ParamSpec("P")
T = TypeVar("T")

# Takes the epoch and its mean training loss.
EpochDone = Callable[[int, float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; kept on B's disk after every epoch.

    Attributes:
        epoch: The last one that was finished.
        losses: Mean training loss of each epoch.
        validation: AUC and log loss of the validation rows after each epoch; empty without such rows.
        best: The epoch whose weights count.
    """

    epoch: int = 0
    losses: tuple[float, ...] = ()
    validation: tuple[Mapping[str, float | None], ...] = ()
    best: int = 0

    def until(self, epoch: int, patience: Patience) -> Progress:
        """Return the progress as it was at the end of an earlier epoch."""
        return Progress(epoch, self.losses[:epoch], self.validation[:epoch]).with_best(patience)

    def with_best(self, patience: Patience) -> Progress:
        """Return the same, with the best epoch found: without validation rows, the last one."""
        best = self._stopping(patience).best_epoch if self.validation else self.epoch
        return replace(self, best=best)

    def ends(self, patience: Patience) -> bool:
        """Whether the run is over: all epochs are done, or none was better for too long."""
        return self.epoch >= patience.most_epochs or self._stopping(patience).ended

    def _stopping(self, patience: Patience) -> EarlyStopping:
        stopping = EarlyStopping(patience)
        for one in self.validation:
            stopping.better(_scores(one))
        return stopping

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Progress:
        """Return what `to_json` wrote."""
        return cls(
            int(document["epoch"]),
            tuple(map(float, document["losses"])),
            tuple(dict(one) for one in document["validation"]),
            int(document["best"]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class RunRows:
    """B's rows of one run.

    Attributes:
        common: B's row numbers of the common rows, in the order of the alignment.
        parts: Positions among the common rows.
        labels: 0 and 1, of all B's rows.
        half: B's encoded rows and settings.
    """

    common: Ints = field(repr=False)
    parts: Parts
    labels: Floats = field(repr=False)
    half: Half


class SplitTraining:
    """One run, as the active party conducts it."""

    def __init__(
        self, rows: RunRows, clients: Sequence[NetClient], epochs: EpochStore, watch: Stopwatch
    ) -> None:
        self._job, self._run = rows.half.job, rows.half.run
        self._rows = rows
        self._clients = clients
        self._epochs = epochs
        self._watch = watch
        # One thread, always the same: torch keeps helpers for every thread that calls it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="splitnn")
        self.columns: dict[str, int] = {}
        self._everywhere: set[int] = set()
        self._attacks = {}
        if self._job.privacy.attacks:
            self._attacks = {one.name: GradientAttacks(rows.labels) for one in clients}

    async def build(self, alignment_id: bytes) -> None:
        """Have every party choose and encode its rows, and say which epochs it can go on from."""
        run, rows = self._run.number, self._rows
        built = await asyncio.gather(
            *(client.build(alignment_id, len(rows.common), run, rows.parts) for client in self._clients)
        )
        self.columns = {one.name: said.columns for one, said in zip(self._clients, built, strict=True)}
        self._everywhere = set.intersection(*(set(one.epochs) for one in built))

    async def run(self, epoch_done: EpochDone) -> tuple[ActiveSplit, Progress]:
        """Train to the end; return B's half as it was in the best epoch, and how it went."""
        try:
            progress = self._kept_progress(self._everywhere)
            role = await self._work(self._at, progress.epoch)
            while not progress.ends(self._job.patience):
                progress = await self._epoch(role, progress)
                await epoch_done(progress.epoch, progress.losses[-1])
            if role.epoch != progress.best:
                role = await self._work(self._at, progress.best)
            return role, progress
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _epoch(self, role: ActiveSplit, before: Progress) -> Progress:
        """Run one epoch with every party, keep it, and return how far the run is now."""
        number, train, parts = before.epoch + 1, self._job.train, self._rows.parts
        role.begin(list(epoch_batches(len(parts.fit), train.batch_size, self._run.seed, number)))
        keep = (before.best,) if before.best else ()
        lines = {one.name: one.epoch(self._run.number, number, keep) for one in self._clients}
        sizes = [*map(role.rows_of, range(role.batches)), len(parts.validation)]
        try:
            parties = await self._from_all(lines, 0, sizes[0])
            for batch in range(role.batches):
                gradients = await self._work(self._step, role, parties)
                for name, line in lines.items():
                    line.send(batch, gradients[name])
                # The others have what they wait for; the rest of the step is done meanwhile.
                parties, _ = await asyncio.gather(
                    self._from_all(lines, batch + 1, sizes[batch + 1]), self._work(self._settle, role)
                )
        finally:
            await asyncio.gather(*(line.close() for line in lines.values()))
        return await self._work(self._finish, role, before, parties)

    def _settle(self, role: ActiveSplit) -> None:
        """End a step; keep B's half after the last one, while the others keep theirs."""
        role.settle()
        if role.is_done:
            self._epochs.keep(self._run.number, role.epoch + 1, role.network.to_bytes())

    def _step(self, role: ActiveSplit, parties: Mapping[str, Singles]) -> Mapping[str, Singles]:
        rows, gradients = role.next_rows, role.step(parties)
        for party, attacks in self._attacks.items():
            attacks.watch(rows, gradients[party])
        return gradients

    def leaks(self) -> dict[str, dict[str, float | None]]:
        """Return how well attacks on the gradients ranked the labels, by party; empty without attacks."""
        found = {party: asdict(attacks.result()) for party, attacks in self._attacks.items()}
        return {
            party: {name: value if math.isfinite(value) else None for name, value in leak.items()}
            for party, leak in found.items()
        }

    async def _from_all(self, lines: Mapping[str, EpochLine], batch: int, rows: int) -> Mapping[str, Singles]:
        """Return every party's representation of a batch."""
        if len(lines) == 1:
            return {name: await line.representations(batch, rows) for name, line in lines.items()}
        found = await asyncio.gather(*(line.representations(batch, rows) for line in lines.values()))
        return dict(zip(lines, found, strict=True))

    def _finish(self, role: ActiveSplit, before: Progress, validated: Mapping[str, Singles]) -> Progress:
        loss, run, parts = role.finish(), self._run.number, self._rows.parts
        validation = before.validation
        if len(parts.validation):
            rows = self._rows.common[parts.validation]
            validation = (*validation, measured(self._rows.labels[rows], role.scores(rows, validated)))
        after = Progress(role.epoch, (*before.losses, loss), validation).with_best(self._job.patience)
        self._epochs.checkpoint.keep(progress_name(run), after.to_json())
        self._epochs.forget(run, but=(after.best, after.epoch - 1, after.epoch))
        return after

    def _kept_progress(self, everywhere: set[int]) -> Progress:
        """Return the progress at the last epoch that every party can go on from."""
        run = self._run.number
        said = self._epochs.checkpoint.kept(progress_name(run))
        if said is None:
            return Progress()
        kept = Progress.from_json(said)
        ours = {0, *self._epochs.epochs(run)} & everywhere
        if kept.ends(self._job.patience) and kept.best in ours:
            return kept
        latest = max(epoch for epoch in ours if epoch <= kept.epoch)
        return kept.until(latest, self._job.patience)

    def _at(self, epoch: int) -> ActiveSplit:
        """Return B's half as it was at the end of an epoch."""
        rows = self._rows
        fit = rows.common[rows.parts.fit]
        if epoch == 0:
            network = new_top(rows.half, rows.labels, len(fit))
        else:
            network = restored_top(rows.half, rows.labels, self._epochs.load(self._run.number, epoch))
        return ActiveSplit(network, fit, epoch)

    async def _work(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._watch.counted("training"):
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, partial(step, *args, **kwargs)
            )


def measured(labels: Floats, scores: Floats) -> dict[str, float | None]:
    """Return AUC, log loss and the log loss of the base rate; None where the rows cannot define it."""
    found = scores_of(labels, scores)
    named = {"auc": found.auc, "log_loss": found.log_loss, "base_loss": found.base_loss}
    return {name: value if math.isfinite(value) else None for name, value in named.items()}


def progress_name(run: int) -> str:
    """Return under which name a checkpoint says how far a run is."""
    return f"run{run}-progress"


async def fetched(
    clients: Sequence[NetClient], run: int, epoch: int, parts: Parts, which: str
) -> dict[str, Singles]:
    """Return every party's representations of the `training` or the `test` rows of a run."""
    rows = parts.training if which == "training" else parts.test
    kind = net.RepresentationsRequest.TRAINING if which == "training" else net.RepresentationsRequest.TEST
    found = await asyncio.gather(*(one.representations(run, epoch, kind, len(rows)) for one in clients))
    return {client.name: values for client, values in zip(clients, found, strict=True)}


def _scores(validation: Mapping[str, float | None]) -> Scores:
    auc, loss, base = (validation[name] for name in ("auc", "log_loss", "base_loss"))
    return Scores(
        math.nan if auc is None else auc,
        math.inf if loss is None else loss,
        math.nan,
        math.nan if base is None else base,
    )
