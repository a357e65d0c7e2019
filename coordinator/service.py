"""The key holder's service: opens and closes jobs, and hands what the role allows to those it allows."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor

from common.crypto.cipher import CipherVector, parse_ciphertexts
from common.crypto.entropy import SystemEntropy
from common.crypto.plan import gradient_packing
from common.crypto.private_key import PrivateKey
from common.errors import Refused, RemoteProtocolError
from common.rpc.chunks import chunk_slices
from common.rpc.greeting import check_caller, make_greeting
from common.rpc.identity import Context, caller
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb.coordinator_pb2 import DESCRIPTOR
from common.rpc.pb.coordinator_pb2_grpc import add_CoordinatorServicer_to_server
from common.rpc.server import PartyServer
from common.rpc.wiretap import Tap, Wiretap
from common.runtime.checkpoint import Checkpoint
from common.runtime.config.job import JobConfig
from common.runtime.config.party import PartyConfig
from common.runtime.hosting import HostedJob, JobHost
from common.runtime.state import STATUS_FILE, JobStore
from common.runtime.stopwatch import Stopwatch
from common.runtime.unfinished import Ending, Spent, closing_reply, ending_record
from coordinator.he_gram import GramKeyHolder
from coordinator.he_gram_service import GramServicer
from coordinator.he_linear import Agreement, KeyHolder

Job = HostedJob[KeyHolder]


class CoordinatorService:
    """The key holder as its process runs it."""

    def __init__(self, own: PartyConfig, executor: Executor, taps: Sequence[Tap] = ()) -> None:
        """Create the service.

        Args:
            own: This party's configuration.
            executor: Not used: private keys do not leave this process.
            taps: Shown every message of this party, as the bytes on the wire.
        """
        wiretap = Wiretap(taps)
        self._servicer = _Servicer(own, wiretap)
        self._server = PartyServer(own.party, own.listen, own.security, wiretap, tuple(own.peers))
        self._server.add(
            add_CoordinatorServicer_to_server, self._servicer, DESCRIPTOR.services_by_name["Coordinator"]
        )

    async def start(self) -> str:
        """Remember jobs that were left unfinished, and begin to listen; return the bound address."""
        await self._servicer.recall()
        return await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """End all jobs and stop listening."""
        await self._servicer.stop()
        await self._server.stop(grace_s)


class _Servicer(GramServicer):
    """Checks identity and turn, converts, calls the role, converts."""

    def __init__(self, own: PartyConfig, wiretap: Wiretap) -> None:
        self._own = own
        self._wiretap = wiretap
        self._store = JobStore(own.state)
        self._host: JobHost[KeyHolder] = JobHost(own, self._on_end, self._on_superseded)
        self._watches: defaultdict[str, Stopwatch] = defaultdict(Stopwatch)
        self._noting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def recall(self) -> None:
        """Expect the parties of jobs that an earlier run of the service left unfinished."""
        await self._host.recall()

    async def stop(self) -> None:
        """End all jobs, because the service stops."""
        await self._host.end_all(f"{self._own.party} is shutting down")

    async def Greet(self, request: pb.Greeting, context: Context) -> pb.Greeting:  # noqa: N802 (gRPC's name)
        check_caller(request, caller(context))
        return make_greeting(self._own.party, self._own.role)

    async def OpenJob(self, request: pb.OpenJobRequest, context: Context) -> pb.OpenJobReply:  # noqa: N802
        party = caller(context)
        job = self._host.admit(request, party)
        if not isinstance(job, JobConfig):
            raise Refused(f"the algorithm {job.algorithm} needs no coordinator")
        reply = pb.OpenJobReply(turn=request.turn, greeting=make_greeting(self._own.party, self._own.role))
        if request.preflight:
            return reply
        hosted = await self._host.known(request.turn, party)
        if hosted is None:
            hosted = await self._host.add(request, job, self._holder(request.turn.job_id, job))
        hosted.state.open(party, request.columns)
        # Not before: another party may still be reading its data, for longer than anybody may be gone.
        hosted.attendees.expect((party,))
        if not hosted.state.missing and not hosted.state.has_key:
            # Half a second at 2048 bits, in a thread so that other jobs go on.
            watch = self._watches[hosted.job_id]
            key = await watch.thread("key", PrivateKey.generate, job.crypto.key_bits, SystemEntropy())
            if not hosted.state.has_key:
                hosted.state.use_key(key)
        return reply

    def _holder(self, job_id: str, job: JobConfig) -> KeyHolder:
        """Return the role for a job; one that is opened again goes on where its decryptions ended."""
        decrypted = max(Checkpoint.of(self._store, job_id).rounds(), default=1) if job.resumes else 1
        loss_every = job.train.loss_every if job.train.solver == "gd" else 0
        slots = gradient_packing(job.crypto.key_bits, job.crypto.precision_bits).slots
        agreement = Agreement(job.active, job.passive, job.train.max_rounds, loss_every, decrypted, slots)
        return GramKeyHolder(agreement) if job.uses_gram else KeyHolder(agreement)

    async def Attend(self, request: pb.Attendance, context: Context) -> AsyncIterator[pb.Presence]:  # noqa: N802
        async for presence in self._host.attend(request.turn, caller(context)):
            yield presence

    async def CloseJob(self, request: pb.CloseJobRequest, context: Context) -> pb.CloseJobReply:  # noqa: N802
        return await self._host.close(request, caller(context))

    async def GetPublicKey(self, request: he.PublicKeyRequest, context: Context) -> he.PublicKey:  # noqa: N802
        hosted = self._host.find(request.turn, caller(context))
        key = hosted.state.key.public
        return he.PublicKey(
            turn=request.turn,
            modulus=key.modulus_bytes,
            noise_generator=key.noise_generator_bytes,
            columns=hosted.state.columns,
        )

    async def DecryptGradient(  # noqa: N802
        self, request: AsyncIterator[he.MaskedGradient], context: Context
    ) -> AsyncIterator[he.DecryptedGradient]:
        party = caller(context)
        hosted, turn, vector = await self._collect(request, party)
        # Both at once: the disk has nothing to do with the arithmetic, and nothing leaves before it knows.
        residues, _ = await asyncio.gather(
            self._watches[hosted.job_id].thread(
                "decryption", hosted.state.decrypt_gradient, party, turn.round, vector
            ),
            self._note_round(hosted, turn.round),
        )
        width = vector.key.residue_bytes
        for rows in chunk_slices(len(residues), width):
            packed = b"".join(residue.to_bytes(width, "big") for residue in residues[rows])
            yield he.DecryptedGradient(turn=turn, residues=packed)

    async def DecryptLoss(self, request: he.EncryptedLoss, context: Context) -> he.DecryptedLoss:  # noqa: N802
        party = caller(context)
        hosted = self._host.find(request.turn, party)
        key = hosted.state.key.public
        vector = parse_ciphertexts(request.ciphertext, key, 1)
        residue, _ = await asyncio.gather(
            self._watches[hosted.job_id].thread(
                "decryption", hosted.state.decrypt_loss, party, request.turn.round, vector
            ),
            self._note_round(hosted, request.turn.round),
        )
        return he.DecryptedLoss(turn=request.turn, residue=residue.to_bytes(key.residue_bytes, "big"))

    async def _note_round(self, hosted: Job, number: int) -> None:
        """Write durably how far decryption has come: a restart must not make it begin anew."""
        async with self._noting[hosted.job_id]:
            if hosted.config.resumes and number > hosted.state.noted:
                checkpoint = Checkpoint.of(self._store, hosted.job_id)
                await asyncio.to_thread(checkpoint.keep_round, number, None)
                hosted.state.noted = number

    async def _collect(
        self, request: AsyncIterator[he.MaskedGradient], party: str
    ) -> tuple[Job, pb.Turn, CipherVector]:
        """Put the chunks of one vector together; more than the declared length is not even kept."""
        hosted: Job | None = None
        turn, parts, length = pb.Turn(), [], 0
        async for message in request:
            if hosted is None:
                hosted, turn = self._host.find(message.turn, party), message.turn
            elif message.turn != turn:
                raise RemoteProtocolError("one stream speaks of two turns")
            part = parse_ciphertexts(message.ciphertexts, hosted.state.key.public, None)
            length += len(part)
            hosted.state.require_length(party, length)
            parts.append(part)
        if hosted is None:
            raise RemoteProtocolError("an empty stream came instead of a gradient")
        return hosted, turn, CipherVector.joined(hosted.state.key.public, parts)

    async def _on_superseded(self, hosted: Job) -> None:
        """Let go of an earlier attempt; its key dies with its state."""

    async def _on_end(self, hosted: Job, ending: Ending) -> pb.CloseJobReply:
        """Keep how the job ended; its key dies with the job's state."""
        traffic = self._wiretap.totals(hosted.job_id)
        self._wiretap.forget(hosted.job_id)
        watch = self._watches.pop(hosted.job_id, Stopwatch())
        self._noting.pop(hosted.job_id, None)
        spent = Spent(traffic.sent_bytes, traffic.received_bytes, dict(watch.seconds))
        record = ending_record(hosted.config, ending, spent)
        await asyncio.to_thread(self._store.write_json, hosted.job_id, STATUS_FILE, record)
        return closing_reply(hosted.job_id, hosted.config, ending, spent, "")
