"""An active party in VFB² jobs of another one: opened like a passive party, it dominates as well."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from common.data.table import Table
from common.glm.asynchronous import UnseenUpdate, Update
from common.glm.outbox import Outbox
from common.glm.row_order import BatchOrder, FixedBatches, RowOrder
from common.glm.score_losses import loss_named
from common.rpc.pb import job_pb2 as pb
from common.runtime.config.job_kinds import Job
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.vfb2.columns import Columns, Labels, labels_of
from common.runtime.vfb2.engine import Engine
from common.runtime.vfb2.guard import fixed_batches
from common.runtime.vfb2.guest_calls import TrainingCalls
from common.runtime.vfb2.guest_service import Vfb2Guest
from common.runtime.vfb2.journal import FLUSHED, WRITTEN, Journal
from common.runtime.vfb2.links import Streams
from common.runtime.vfb2.place import Place
from common.runtime.vfb2.sums import no_shares
from party_b.asynchronous.dominating import DominatorEngine, restore
from party_b.vfb2 import Dominance, Dominator

E = TypeVar("E", bound=DominatorEngine)


class GuestServicer(Vfb2Guest):
    """What an active party answers in jobs of others."""

    async def _open_training(self, request: pb.OpenJobRequest, job: Job) -> pb.OpenJobReply:
        if isinstance(job, Vfb2Job):
            return await self.open_vfb2(request, job, DominatorCalls)
        return await super()._open_training(request, job)


class DominatorCalls(TrainingCalls):
    """The state of one job at one active party that does not conduct it."""

    def make_engine(self, place: Place, columns: Columns, table: Table) -> Engine:
        """Return the engine with our block and labels, standing where our journal says."""
        labels = labels_of(table, place.job, place.party)
        return engine_for(DominatorEngine, place, columns, labels, self.folder)

    def dominate(self, engine: Engine, streams: Streams) -> None:
        """Dial everybody, and begin updates when the keeper says so."""
        if isinstance(engine, DominatorEngine):
            engine.connect(streams.dominate(engine.role.outbox, engine.hear_back, self._broken))


# More than this part of an epoch in flight would be no epoch any more: SVRG's snapshot, the cut and the last
# epoch's end would all be overrun. It matters for small data only.
_PART_IN_FLIGHT = 4


def most_in_flight(place: Place) -> int:
    """Return how many updates of one dominator may be in flight: `max_staleness`, or fewer for few rows."""
    rows = place.limits.batch_size * len(place.limits.dominators)
    return min(place.job.train.max_staleness, max(1, place.limits.train // (_PART_IN_FLIGHT * rows)))


def _order(place: Place) -> BatchOrder:
    """Return which rows come next: shuffled anew in every pass, but not where θ is hidden (rank rule)."""
    job, rows = place.job, place.limits.train
    if job.train.theta == "plain":
        return RowOrder(rows, job.train.batch_size, job.train.seed, place.party)
    return FixedBatches(fixed_batches(job, rows), job.train.seed, place.party)


def engine_for(kind: type[E], place: Place, columns: Columns, labels: Labels, folder: Path) -> E:
    """Return an active party's engine, standing where its journal says.

    Raises:
        StateError: The journal cannot be read.
    """
    job, party = place.job, place.party
    train = job.train
    others = [name for name in job.members if name != party]
    dominance = Dominance(
        party,
        labels.values[columns.train_rows],
        loss_named(train.loss),
        _order(place),
        Outbox(others, most_in_flight(place)),
        kind=Update if train.theta == "plain" else UnseenUpdate,
    )
    role = Dominator(columns.collaboration(job), no_shares(job), dominance)
    journal = Journal(folder, FLUSHED if train.journal == "flushed" else WRITTEN)
    restore(role, journal, place)
    return kind(place, role, journal)
