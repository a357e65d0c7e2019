"""A passive party's part in VFB² between processes (protos/vfl/v1/vfb2.proto): a collaborator, no more."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from common.data.table import Table
from common.glm.asynchronous import EpochEnd, Update
from common.runtime.vfb2.columns import Columns
from common.runtime.vfb2.engine import Engine
from common.runtime.vfb2.guest_calls import TrainingCalls
from common.runtime.vfb2.journal import COLLABORATING, Journal
from common.runtime.vfb2.place import Place
from common.runtime.vfb2.records import (
    Kept,
    StartOverRecord,
    SumsRecord,
    kept_from_bytes,
    kept_to_bytes,
    record_from,
)
from common.runtime.vfb2.sums import no_shares
from party_a.vfb2 import Collaborator


class CollaboratorCalls(TrainingCalls):
    """The state of one job at one passive party."""

    def make_engine(self, place: Place, columns: Columns, table: Table) -> Engine:
        """Return the engine with our block, standing where our journal says."""
        role = Collaborator(columns.collaboration(place.job), no_shares(place.job))
        journal = Journal(self.folder, COLLABORATING)
        restore(role, journal, place)

        def snapshot() -> Callable[[], bytes]:
            return partial(kept_to_bytes, Kept(role.state()))

        return Engine(place, role, journal, snapshot)


def restore(role: Collaborator, journal: Journal, place: Place) -> None:
    """Go to where an earlier process stood; without a checkpoint nothing had been told to anybody."""
    recovered = journal.recover()
    if recovered.checkpoint is None:
        return
    role.restore(kept_from_bytes(recovered.checkpoint, place.limits).state)
    for content in recovered.records:
        record = record_from(content, place.limits)
        if isinstance(record, Update):
            role.apply(record)
        elif isinstance(record, SumsRecord):
            role.collaboration.apply_sums(record.update, record.sums)
        elif isinstance(record, EpochEnd):
            role.collaboration.freeze(record)
        elif isinstance(record, StartOverRecord):
            role.collaboration.start_over(record.step)
