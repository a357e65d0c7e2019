"""The key holder alone, and parties driven by hand: what an attacker with a certificate can do."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from common.crypto.cipher import PaillierCipher, SealedVector
from common.crypto.entropy import SystemEntropy
from common.crypto.paillier import PublicKey
from common.errors import ColonnadeError, PeerRefused
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.runtime.compute import InProcessExecutor
from common.runtime.config.job import JobConfig
from tests.attacks.world import CALL_S, World, opening, turn_of

CALLERS = ("party_a", "party_a2", "party_b", "stranger")


@dataclass
class Oracle:
    """A coordinator that runs, and a stub of it for every certificate.

    Attributes:
        stubs: By caller.
        job: The job of party_a, party_b and the coordinator: three rounds, loss in rounds 1 and 3.
        caplog: Where refusals must appear.
    """

    stubs: dict[str, Any]
    job: JobConfig
    caplog: pytest.LogCaptureFixture
    columns: dict[str, int]
    cipher: PaillierCipher | None = None

    async def open(self, party: str, job: JobConfig | None = None, job_id: str = "attacked-1") -> None:
        """Open a job as a party."""
        request = opening(job or self.job, party, "coordinator", columns=self.columns[party], job_id=job_id)
        await self.stubs[party].OpenJob(request, timeout=CALL_S)

    async def open_everywhere(self) -> None:
        """Open the job as both parties, and fetch the key."""
        await self.open("party_a")
        await self.open("party_b")
        reply = await self.stubs["party_a"].GetPublicKey(
            he.PublicKeyRequest(turn=turn_of(self.job)), timeout=CALL_S
        )
        key = PublicKey.from_bytes(reply.modulus, reply.noise_generator)
        self.cipher = PaillierCipher(key, InProcessExecutor(), SystemEntropy())

    def sealed(self, *values: int) -> SealedVector:
        """Return encrypted values."""
        assert self.cipher is not None
        return self.cipher.encrypt(values)

    async def gradient(self, party: str, turn: int | pb.Turn, *parts: SealedVector) -> list[int]:
        """Ask for a gradient's decryption, each part in a message of its own."""
        turns = turn_of(self.job, turn) if isinstance(turn, int) else turn
        messages = [he.MaskedGradient(turn=turns, ciphertexts=part.to_bytes()) for part in parts]
        return await self.stream(party, messages)

    async def stream(self, party: str, messages: Sequence[he.MaskedGradient]) -> list[int]:
        """Ask for a gradient's decryption with these very messages."""
        assert self.cipher is not None
        packed, width = b"", self.cipher.key.residue_bytes
        async for answer in self.stubs[party].DecryptGradient(iter(messages), timeout=CALL_S):
            packed += answer.residues
        return [int.from_bytes(packed[at : at + width], "big") for at in range(0, len(packed), width)]

    async def loss(self, party: str, turn: int | pb.Turn, vector: SealedVector) -> int:
        """Ask for a loss's decryption."""
        turns = turn_of(self.job, turn) if isinstance(turn, int) else turn
        request = he.EncryptedLoss(turn=turns, ciphertext=vector.to_bytes())
        reply = await self.stubs[party].DecryptLoss(request, timeout=CALL_S)
        return int.from_bytes(reply.residue, "big")

    async def refuses(
        self, call: Awaitable[Any], party: str, kind: type[ColonnadeError] = PeerRefused
    ) -> str:
        """Check that a call is refused with a typed error and logged with the caller; return the words."""
        self.caplog.clear()
        with pytest.raises(kind) as caught:
            await call
        logged = [record.getMessage() for record in self.caplog.records if record.name == "vfl.rpc"]
        assert any(f" from {party} " in line for line in logged), logged
        return caught.value.what


@contextlib.asynccontextmanager
async def oracle_of(
    world: World, job: JobConfig, caplog: pytest.LogCaptureFixture, columns: int = 3
) -> AsyncIterator[Oracle]:
    """Start a coordinator and dial it with every certificate; party_b has a column less than party_a."""
    caplog.set_level("INFO", "vfl.rpc")
    async with world.running("coordinator"), contextlib.AsyncExitStack() as stack:
        stubs = {
            caller: await stack.enter_async_context(world.dialled("coordinator", caller))
            for caller in CALLERS
        }
        lengths = dict.fromkeys(CALLERS, columns) | {"party_b": columns - 1}
        yield Oracle(stubs, job, caplog, lengths)
