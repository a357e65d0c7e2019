"""A passive party in any job, as the active party sees it: opened, attended, aligned with, closed."""

from __future__ import annotations

from common.data.ids import rule_differences
from common.errors import DataError, RemoteProtocolError
from common.rpc.channels import Deadline, open_channel
from common.rpc.greeting import check_greeting, make_greeting
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb.passive_party_pb2_grpc import PassivePartyStub
from common.rpc.presence import attend
from common.rpc.wiretap import Wiretap
from common.runtime.config.job_base import JobBase
from common.runtime.config.party import PartyConfig
from common.runtime.coordinator_client import peer_address
from party_b.alignment_client import AlignmentClient


class PassiveLine:
    """The active party's connection to one passive party in one job."""

    def __init__(self, name: str, own: PartyConfig, job: JobBase, turn: pb.Turn, wiretap: Wiretap) -> None:
        self.name = name
        self.address = peer_address(own, name)
        self._own = own
        self._offered = job
        self._turn = turn
        self._call_s = Deadline(own.deadlines.call_s, "deadlines.call_s")
        self._step_s = Deadline(own.deadlines.step_s, "deadlines.step_s")
        self._channel = open_channel(name, self.address, own.party, own.security, wiretap)
        self._stub = PassivePartyStub(self._channel)
        self.alignment = AlignmentClient(name, self._stub, turn, self._step_s)

    async def greet(self, within_s: float) -> None:
        """Make sure that the party answers."""
        greeting = make_greeting(self._own.party, self._own.role)
        check_greeting(
            await self._stub.Greet(greeting, timeout=within_s),
            self.name,
            self._offered.role_of(self.name),
            self.address,
        )

    async def open_job(self, rule: str, alignment_id: bytes) -> pb.OpenJobReply:
        """Open the job, and make sure that both sides make ids by the same rule.

        Args:
            rule: The active party's rule for ids.
            alignment_id: Of an earlier alignment that may serve again; empty without one.

        Raises:
            PeerRefused: The party does not agree; says why.
            DataError: The rules differ.
        """
        request = pb.OpenJobRequest(
            turn=self._turn,
            greeting=make_greeting(self._own.party, self._own.role),
            expected_role=self._offered.role_of(self.name) or "",
            job_json=self._offered.canonical_json(),
            alignment_id=alignment_id,
        )
        # The other side reads its file meanwhile, and may open the job at the coordinator.
        reply = await self._stub.OpenJob(request, timeout=self._step_s)
        check_greeting(reply.greeting, self.name, self._offered.role_of(self.name), self.address)
        if reply.rows < 1:
            raise RemoteProtocolError(f"{self.name} opened the job without its number of rows")
        self._check_rule(rule, reply.id_rule)
        return reply

    async def attend(self) -> None:
        """Be present until cancelled; raises when the party is gone or ends the job."""
        await attend(
            self._stub.Attend,
            self._turn,
            peer=self.name,
            address=self.address,
            peer_s=self._own.deadlines.peer_s,
        )

    async def close_job(self, request: pb.CloseJobRequest) -> pb.CloseJobReply:
        """End the job at the party, which keeps its part of the model if the job finished with one."""
        return await self._stub.CloseJob(request, timeout=self._call_s)

    async def disconnect(self) -> None:
        """Close the connection; what is still running on it ends."""
        await self._channel.close()

    def _check_rule(self, rule: str, theirs: str) -> None:
        """Compare how both sides make ids; under different rules equal ids may never meet."""
        differences = rule_differences(rule, theirs)
        if differences:
            dataset = self._offered.data.dataset
            raise DataError(
                f"{self.name} and {self._own.party} make ids by different rules: {'; '.join(differences)}",
                where=f"data set {dataset}: here {self._own.party}, there {self.name}",
                advice=f"Declare the same under datasets.{dataset}.id at both parties.",
            )
