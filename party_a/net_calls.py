"""A split network at a passive party (protos/vfl/v1/splitnn.proto): converts, and calls the role."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from common.data.scanned import Rows
from common.errors import LocalProtocolError, RemoteProtocolError
from common.nets.batches import epoch_batches
from common.nets.field_stream import learn
from common.nets.protect import Singles
from common.rpc.pb import splitnn_pb2 as pb
from common.rpc.wiretap import Traffic
from common.runtime.checkpoint import TRAINED, Checkpoint
from common.runtime.config.networks import NetJob, Run
from common.runtime.config.party import PartyConfig
from common.runtime.epoch_store import EpochStore, party_secret
from common.runtime.guest.align_calls import AlignmentCalls
from common.runtime.guest.job_calls import JobCalls
from common.runtime.kept_data import hold_to_digest
from common.runtime.net_design import NetDesign, Parts, encoded, field_settings, parts_of
from common.runtime.net_halves import Half, make_ready, new_bottom, release_of, restored_bottom
from common.runtime.saved_network import SavedNetwork, keep_network, missing_rules
from common.runtime.state import JobStore
from common.runtime.unfinished import Spent
from common.runtime.wire_numbers import WireReader, WireRows
from common.types import Ints
from party_a.splitnn import PassiveSplit

P = ParamSpec("P")
T = TypeVar("T")

Sent = tuple[int, Singles]

# Which epoch each run ended with, and what the job has cost so far.
_SETTLED, _SPENT = "settled", "spent"

# Returns what the job's messages have cost in this attempt.
Traffics = Callable[[], Traffic]


@dataclass(frozen=True, slots=True)
class NetTools:
    """What a job with a split network uses at this party."""

    own: PartyConfig
    store: JobStore
    job_id: str
    traffic: Traffics


@dataclass(slots=True, eq=False)
class _Built:
    """One run's network and rows.

    Attributes:
        run: Which one.
        parts: Which of the common rows train, validate and test.
        design: The common rows in the order of the alignment, encoded.
        role: None until an epoch begins, and after one was broken off.
    """

    run: Run
    parts: Parts
    design: NetDesign
    role: PassiveSplit | None = None


class NetCalls(JobCalls):
    """The state of one job with a split network at one passive party."""

    def __init__(self, job: NetJob, rows: Rows, alignment: AlignmentCalls, tools: NetTools) -> None:
        super().__init__(alignment)
        self._tools = tools
        self._checkpoint = Checkpoint.of(tools.store, tools.job_id)
        self.before = Spent.from_json(self._checkpoint.kept(_SPENT))
        self._job = job
        self._rows = rows
        self._epochs = EpochStore(self._checkpoint)
        self._form = WireRows(job.model.bottom[-1], job.train.wire)
        self._built: _Built | None = None
        settled = self._checkpoint.kept(_SETTLED) or {}
        self._settled = {int(run): int(epoch) for run, epoch in settled.items()}
        self._turn = asyncio.Lock()
        # One thread, always the same: torch keeps helpers for every thread that calls it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="splitnn")
        # Importing torch takes seconds, in which ids are aligned.
        self._thread.submit(make_ready)

    async def build(self, request: pb.BuildNetworkRequest) -> pb.NetworkBuilt:
        """Choose and encode the rows of a run; say which of its epochs can be gone on from."""
        rows = self.alignment.rows(request.alignment_id, request.rows)
        if request.run >= len(self._job.runs):
            raise RemoteProtocolError(f"the job has no run {request.run}")
        async with self._turn:
            if self._built is None or self._built.run.number != request.run:
                self._built = await self._work(self._build, rows, self._job.runs[request.run])
        built = self._built
        return pb.NetworkBuilt(
            turn=request.turn,
            run=request.run,
            train_rows=len(built.parts.fit),
            validation_rows=len(built.parts.validation),
            test_rows=len(built.parts.test),
            columns=len(self._rows.features),
            width=self._form.width,
            epochs=(0, *self._epochs.epochs(request.run)),
        )

    async def train_epoch(
        self, first: pb.EpochTurn, more: AsyncIterator[pb.EpochTurn]
    ) -> AsyncIterator[pb.Representations]:
        """Run an epoch: representations of its batches, then of the validation rows."""
        async with self._turn:
            built = self._of_run(first.run)
            if first.run in self._settled:
                raise RemoteProtocolError("the run has ended: its representations were sent")
            try:
                role = await self._work(self._begin, built, first.turn.round)
                for sent in await self._work(_forward_all, role):
                    for chunk in self._chunks(first, sent):
                        yield chunk
                while not role.is_done:
                    batch, gradient = await self._gradient(first, more, role.next_rows)
                    for sent in await self._work(_backward, role, batch, gradient):
                        for chunk in self._chunks(first, sent):
                            yield chunk
                validated = await self._work(self._finish, built, role, tuple(first.keep))
            except BaseException:
                # The weights moved within an epoch that did not end: it begins again from the one before it.
                built.role = None
                raise
            for chunk in self._chunks(first, validated):
                yield chunk

    async def send_representations(
        self, request: pb.RepresentationsRequest
    ) -> AsyncIterator[pb.Representations]:
        """Send h_A of training or test rows, with the weights of one epoch: of a run, always the same one."""
        async with self._turn:
            built, epoch = self._of_run(request.run), request.turn.round
            rows = _named_rows(built.parts, request.rows)
            await self._work(self._settle, built, epoch)
            values = await self._work(self._represent, built, rows)
        error = self._form.rounding_error(values)
        for chunk in self._chunks(request, (0, values)):
            chunk.rounding_error = error
            yield chunk

    async def leave(self) -> None:
        """Let go of the rows and the network."""
        self._built = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    def model(self, job_id: str, rounds: int) -> dict[str, object]:
        """Return what model.json keeps; the weights lie beside it.

        Raises:
            RemoteProtocolError: The job is said to have finished after another epoch than the one whose
                representations were sent.
        """
        kept = self._checkpoint.kept(TRAINED)
        if kept is None or kept["rounds"] != rounds:
            raise RemoteProtocolError(
                f"the job finished after epoch {rounds}, whose representations were not sent"
            )
        document: dict[str, object] = kept["model"]
        return document

    def notes(self) -> list[str]:
        """Return what became of this party's own rows."""
        return self._rows.head.intake.sentences()

    def _of_run(self, run: int) -> _Built:
        if self._built is None or self._built.run.number != run:
            raise RemoteProtocolError(f"run {run} has not been built here")
        return self._built

    def _build(self, rows: Ints, run: Run) -> _Built:
        parts = parts_of(len(rows), self._job.data, run)
        plan = learn(self._rows, rows[parts.training], field_settings(self._tools.own, self._job))
        part = f"run{run.number}"
        design = encoded(self._rows, rows, plan, self._checkpoint.folder / f"{part}-rows")
        hold_to_digest(self._checkpoint, design.digest(), self._rows.head, part)
        return _Built(run, parts, design)

    def _begin(self, built: _Built, epoch: int) -> PassiveSplit:
        """Stand before an epoch: go on, or go back to the end of the one before it."""
        role = built.role
        if role is None or not role.is_between_epochs or role.epoch != epoch - 1:
            role = built.role = self._at(built, epoch - 1)
        train = self._job.train
        role.begin(epoch, list(epoch_batches(len(built.parts.fit), train.batch_size, built.run.seed, epoch)))
        return role

    def _at(self, built: _Built, epoch: int) -> PassiveSplit:
        """Return the role as it was at the end of an epoch.

        Raises:
            UnknownJob: That epoch was not kept.
        """
        half = self._half(built)
        if epoch == 0:
            network = new_bottom(half, len(built.parts.fit))
        else:
            network = restored_bottom(half, self._epochs.load(built.run.number, epoch))
        return PassiveSplit(network, built.parts.fit, int(self._job.train.pipeline), epoch)

    def _half(self, built: _Built) -> Half:
        return Half(self._job, built.run, built.design, party_secret(self._tools.own.state))

    def _finish(self, built: _Built, role: PassiveSplit, keep: tuple[int, ...]) -> Sent:
        """Keep the epoch on the disk, and only then make what is sent of it."""
        role.finish()
        run = built.run.number
        self._epochs.keep(run, role.epoch, role.network.to_bytes())
        self._checkpoint.keep(_SPENT, self.spent(self._tools.traffic()).to_json())
        self._epochs.forget(run, but=(*keep, role.epoch - 1, role.epoch))
        return role.batches, role.represent(built.parts.validation)

    def _settle(self, built: _Built, epoch: int) -> None:
        """Note durably with which epoch a run ends: representations of no other epoch are sent then.

        Raises:
            RemoteProtocolError: It is another epoch than before, or one that is not kept.
        """
        run = built.run.number
        if self._settled.get(run, epoch) != epoch:
            raise RemoteProtocolError("the run ended with another epoch")
        if built.role is None or built.role.epoch != epoch:
            if epoch not in (0, *self._epochs.epochs(run)):
                raise RemoteProtocolError(f"epoch {epoch} of this run is not kept here")
            built.role = self._at(built, epoch)
        if run in self._settled:
            return
        if run == 0:
            self._keep_model(built, built.role)
        settled = {**self._settled, run: epoch}
        self._checkpoint.keep(_SETTLED, {str(one): at for one, at in settled.items()})
        self._settled = settled
        self._epochs.forget(run, but=(epoch,))

    def _keep_model(self, built: _Built, role: PassiveSplit) -> None:
        store, job_id, plan = self._tools.store, self._tools.job_id, built.design.plan
        saved = SavedNetwork(
            job_id=job_id,
            job=self._job.job,
            party=self._tools.own.party,
            algorithm=self._job.algorithm,
            part="passive half",
            active=self._job.active,
            passive=self._job.passive,
            rounds=role.epoch,
            plan=plan,
            missing=missing_rules(self._rows.head, plan),
            network_sha256=keep_network(store, job_id, role.network.weights_to_bytes()),
            width=self._form.width,
            release=release_of(self._half(built)),
            notes=tuple(self.notes()),
        )
        spent = self.spent(self._tools.traffic()).to_json()
        self._checkpoint.keep(TRAINED, {"rounds": role.epoch, "spent": spent, "model": saved.to_json()})

    def _represent(self, built: _Built, rows: Ints) -> Singles:
        if built.role is None:
            raise LocalProtocolError("a run was settled without its network")
        return built.role.represent(rows)

    async def _gradient(
        self, first: pb.EpochTurn, more: AsyncIterator[pb.EpochTurn], rows: int
    ) -> tuple[int, Singles]:
        """Return the next gradient that B sends, and the number of its batch.

        Raises:
            RemoteProtocolError: The stream ends, or speaks of something else.
        """
        reader, batch = WireReader(self._form, rows), None
        async for message in more:
            if (message.turn, message.run) != (first.turn, first.run) or batch not in (None, message.batch):
                raise RemoteProtocolError("one stream speaks of two epochs, or of two batches at once")
            batch = message.batch
            if reader.add(message.gradient):
                return batch, reader.rows()
        raise RemoteProtocolError("an epoch ended before its last gradient")

    def _chunks(
        self, about: pb.EpochTurn | pb.RepresentationsRequest, sent: Sent
    ) -> Iterator[pb.Representations]:
        batch, values = sent
        for piece in self._form.pieces(values):
            rows, width = self._form.rows_in(piece), self._form.width
            yield pb.Representations(
                turn=about.turn, run=about.run, batch=batch, values=piece, rows=rows, width=width
            )

    async def _work(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do a step in the one thread that calls torch, and count its seconds."""
        with self.watch.counted("training"):
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, partial(step, *args, **kwargs)
            )


def _forward_all(role: PassiveSplit) -> list[Sent]:
    """Run forward as many batches as may run now."""
    sent = []
    while role.may_run_forward:
        sent.append(role.forward())
    return sent


def _backward(role: PassiveSplit, batch: int, gradient: Singles) -> list[Sent]:
    role.backward(batch, gradient)
    return _forward_all(role)


def _named_rows(parts: Parts, rows: pb.RepresentationsRequest.Rows.ValueType) -> Ints:
    if rows == pb.RepresentationsRequest.TRAINING:
        return parts.training
    if rows == pb.RepresentationsRequest.TEST:
        return parts.test
    raise RemoteProtocolError("the request does not say which rows")
