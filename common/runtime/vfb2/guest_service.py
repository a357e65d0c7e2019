"""Opens VFB² jobs of others at this party."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from common.data.table import Table
from common.rpc.pb import job_pb2 as pb
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.coordinator_client import peer_address
from common.runtime.guest.align_calls import AlignmentCalls
from common.runtime.guest.service import GuestServicer, Hosted
from common.runtime.state import make_folder
from common.runtime.unfinished import Ending
from common.runtime.vfb2.columns import labels_of, prepare_columns, read_rows
from common.runtime.vfb2.desk import Desk, TrainingServicer
from common.runtime.vfb2.guest_calls import Guest, TrainingCalls, heard_failure
from common.runtime.vfb2.sums import dialled_by, require_hidden_sums

log = logging.getLogger("vfl.vfb2")

MakeCalls = Callable[[Guest, Table, AlignmentCalls], TrainingCalls]


class Vfb2Guest(GuestServicer):
    """The part of the service that takes part in VFB²; whether as a dominator, the party's package says."""

    def training(self, conducted: Desk | None = None) -> TrainingServicer:
        """Return the service of protos/vfl/v1/vfb2.proto for the jobs that are open here."""
        return TrainingServicer(self._host, conducted)

    async def open_vfb2(
        self, request: pb.OpenJobRequest, job: Vfb2Job, make_calls: MakeCalls
    ) -> pb.OpenJobReply:
        """Read our rows, look at the trees of the sums ourselves, and open the job.

        Raises:
            Refused: The trees would show somebody more than the sums, or our policy says no.
            ConfigError: We have no address of a party that we would have to dial.
        """
        own = self._own
        await asyncio.to_thread(require_hidden_sums, job)
        table = await asyncio.to_thread(read_rows, own, job)
        if own.party in job.dominators:
            labels_of(table, job, own.party)
        alignment = await self._alignment(job, table.ids, own.policy.least_common)
        reply = await self._opening(request, job, table, alignment)
        for name in dialled_by(job, own.party):
            peer_address(own, name)
        if request.preflight:
            columns = await asyncio.to_thread(prepare_columns, table, job, own.party)
            reply.columns = len(columns.names)
            return reply
        folder = self._tools.store.checkpoint_dir(request.turn.job_id)
        await asyncio.to_thread(make_folder, folder)
        calls = make_calls(Guest(own, job, request.turn, self._tools.wiretap, folder), table, alignment)
        hosted = await self._host.add(request, job, calls)
        hosted.attendees.expect((job.active,))
        calls.on_failure = lambda exc: self._failed(hosted, exc)
        calls.opened.set_result(reply)
        return reply

    def _failed(self, hosted: Hosted, exc: Exception) -> None:
        log.warning("job %s failed here: %s", hosted.job_id, heard_failure(exc), exc_info=exc)
        ending = self._host.end(hosted, Ending(pb.FAILED, heard_failure(exc)))
        self._ending = asyncio.ensure_future(ending)
