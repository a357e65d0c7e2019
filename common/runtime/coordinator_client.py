"""The coordinator as a party of a job sees it: opens the job there, stays present, and asks it to decrypt."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping

from common.crypto.cipher import SealedVector
from common.crypto.paillier import PublicKey
from common.errors import ConfigError, RemoteProtocolError
from common.rpc.channels import Deadline, open_channel
from common.rpc.greeting import check_greeting, make_greeting
from common.rpc.pb import he_gram_pb2 as gram
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb.coordinator_pb2_grpc import CoordinatorStub
from common.rpc.presence import attend
from common.rpc.wiretap import Wiretap
from common.runtime.config.job import JobConfig
from common.runtime.config.party import PartyConfig
from common.runtime.gram_messages import pieces


def peer_address(own: PartyConfig, peer: str) -> str:
    """Return where a peer is dialled.

    Raises:
        ConfigError: The party file does not say.
    """
    address = own.peers.get(peer)
    if address is None:
        raise ConfigError(
            f"{own.party} has no address for {peer}",
            advice=f"Name it under `peers` in the party file of {own.party}.",
        )
    return address


def in_round(turn: pb.Turn, number: int) -> pb.Turn:
    """Return the same job's turn in a round."""
    return pb.Turn(job_id=turn.job_id, job_digest=turn.job_digest, round=number, attempt=turn.attempt)


class CoordinatorClient:
    """One party's connection to the coordinator in one job."""

    def __init__(self, own: PartyConfig, job: JobConfig, turn: pb.Turn, wiretap: Wiretap) -> None:
        self.name = job.coordinator
        self.address = peer_address(own, self.name)
        self._own = own
        self._job = job
        self._turn = in_round(turn, 0)
        self._call_s = Deadline(own.deadlines.call_s, "deadlines.call_s")
        self._step_s = Deadline(own.deadlines.step_s, "deadlines.step_s")
        self._channel = open_channel(self.name, self.address, own.party, own.security, wiretap)
        self._stub = CoordinatorStub(self._channel)

    async def greet(self, within_s: float) -> None:
        """Make sure that the coordinator answers."""
        greeting = make_greeting(self._own.party, self._own.role)
        reply = await self._stub.Greet(greeting, timeout=within_s)
        check_greeting(reply, self.name, "coordinator", self.address)

    async def open_job(self, columns: int = 0, *, preflight: bool = False) -> None:
        """Open the job; and again when the rows are aligned, to declare how long our gradients will be."""
        request = pb.OpenJobRequest(
            turn=self._turn,
            greeting=make_greeting(self._own.party, self._own.role),
            expected_role="coordinator",
            job_json=self._job.canonical_json(),
            columns=columns,
            preflight=preflight,
        )
        # The last party to open waits while the key pair is made: seconds at 4096 bits.
        reply = await self._stub.OpenJob(request, timeout=self._step_s)
        check_greeting(reply.greeting, self.name, "coordinator", self.address)

    async def attend(self) -> None:
        """Be present until cancelled; raises when the coordinator is gone or ends the job."""
        await attend(
            self._stub.Attend,
            self._turn,
            peer=self.name,
            address=self.address,
            peer_s=self._own.deadlines.peer_s,
        )

    async def public_key(self, columns: Mapping[str, int]) -> PublicKey:
        """Return the job's public key, checked.

        Args:
            columns: Of every party, as this one was told.

        Raises:
            RemoteProtocolError: The key is damaged, or a party has declared other columns to the coordinator.
        """
        reply = await self._stub.GetPublicKey(he.PublicKeyRequest(turn=self._turn), timeout=self._call_s)
        for party, count in columns.items():
            declared = reply.columns.get(party)
            if declared != count:
                raise RemoteProtocolError(
                    f"{party} has declared {declared} columns to {self.name}, but {count} to the others"
                )
        return PublicKey.from_bytes(reply.modulus, reply.noise_generator, self._job.crypto.noise)

    async def decrypt_gradient(self, number: int, masked: SealedVector) -> list[int]:
        """Return the residues of this party's masked gradient of a round."""
        turn = in_round(self._turn, number)
        chunks = (he.MaskedGradient(turn=turn, ciphertexts=chunk) for chunk in pieces(masked))
        return await self._residues(self._stub.DecryptGradient(chunks, timeout=self._step_s), masked)

    async def declare_gram(self, result_length: int, products_lengths: Mapping[str, int]) -> None:
        """Declare how many ciphertexts this party will have decrypted in Gram rounds."""
        declaration = gram.GramDeclaration(
            turn=self._turn, result_length=result_length, products_lengths=products_lengths
        )
        await self._stub.DeclareGram(declaration, timeout=self._call_s)

    async def decrypt_products(self, masker: str, blinded: SealedVector) -> list[int]:
        """Return the residues of the cross products with a masker, under both masks still."""
        chunks = (
            gram.BlindedProducts(turn=self._turn, masker=masker, ciphertexts=chunk)
            for chunk in pieces(blinded)
        )
        return await self._residues(self._stub.DecryptProducts(chunks, timeout=self._step_s), blinded)

    async def decrypt_loss(self, number: int, loss: SealedVector) -> int:
        """Return the residue of the round's loss."""
        request = he.EncryptedLoss(turn=in_round(self._turn, number), ciphertext=loss.to_bytes())
        reply = await self._stub.DecryptLoss(request, timeout=self._call_s)
        if len(reply.residue) != loss.key.residue_bytes:
            raise RemoteProtocolError(f"{self.name} returned a loss of the wrong width")
        return int.from_bytes(reply.residue, "big")

    async def close_job(self, request: pb.CloseJobRequest) -> pb.CloseJobReply:
        """End the job at the coordinator."""
        return await self._stub.CloseJob(request, timeout=self._call_s)

    async def disconnect(self) -> None:
        """Close the connection; what is still running on it ends."""
        await self._channel.close()

    async def _residues(
        self, answer: AsyncIterable[he.DecryptedGradient | gram.DecryptedProducts], asked: SealedVector
    ) -> list[int]:
        width, residues = asked.key.residue_bytes, b""
        async for chunk in answer:
            residues += chunk.residues
            if len(residues) > len(asked) * width:
                break
        if len(residues) != len(asked) * width:
            raise RemoteProtocolError(f"{self.name} returned a vector of the wrong length")
        parts = [residues[at : at + width] for at in range(0, len(residues), width)]
        return [int.from_bytes(part, "big") for part in parts]
