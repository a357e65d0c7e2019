"""VFB² with `theta: encrypted` at A's own service and at B's engine: each looks at the rules itself."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.crypto.entropy import SystemEntropy
from common.crypto.private_key import PrivateKey
from common.errors import PeerRefused, Refused
from common.glm.feature_rows import DenseRows
from common.rpc.channels import Deadline, open_channel
from common.rpc.pb import job_pb2
from common.rpc.pb import vfb2_pb2 as pb
from common.rpc.pb.passive_party_pb2_grpc import PassivePartyStub
from common.rpc.pb.vfb2_pb2_grpc import Vfb2Stub
from common.rpc.tls import Security, TlsFiles
from common.rpc.wiretap import Wiretap
from common.runtime.compute import InProcessExecutor
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.stopwatch import Stopwatch
from common.runtime.vfb2.columns import Columns, Labels
from common.runtime.vfb2.place import Place
from common.runtime.vfb2.wire import Limits
from party_b.alignment import AlignmentConductor, Alike
from party_b.alignment_client import AlignmentClient
from party_b.asynchronous.guarded_engine import GuardedKeeperEngine
from party_b.asynchronous.guest import engine_for
from tests.attacks import vfb2_world
from tests.attacks.world import CALL_S, KEY_BITS, POLICY, World, opening, turn_of

ROWS = 40
POLICIES = {**POLICY, "algorithms": ["vfb2"]}


def job_of(**train: Any) -> Vfb2Job:
    """Return a job of party_a and party_b with θ encrypted, in batches of 20."""
    guarded = {"update": "sgd", "theta": "encrypted", "theta_key_bits": KEY_BITS, "batch_size": 20}
    return vfb2_world.job_of(active="party_b", passive=["party_a"], train=guarded | train)


@dataclass
class Dominated:
    """party_a, and what somebody with party_b's certificate may send it."""

    a: Any
    training: Any
    job: Vfb2Job

    async def prepare(self) -> None:
        """Open the job, align all ids, and let A take its role."""
        turn = turn_of(self.job)  # type: ignore[arg-type] # it has a digest as well
        await self.a.OpenJob(opening(self.job, "party_b", "party_a"), timeout=CALL_S)  # type: ignore[arg-type]
        client = AlignmentClient("party_a", self.a, turn, Deadline(CALL_S, "CALL_S"))
        ids = tuple(f"r{at:04d}" for at in range(ROWS))
        alike = Alike("party_b", ids, {"party_a": ROWS, "party_b": ROWS}, 1)
        conductor = AlignmentConductor(alike, {"party_a": client}, InProcessExecutor(), Stopwatch(), _unheard)
        found = (await conductor.run()).alignment
        request = pb.PrepareTraining(turn=turn, alignment_id=found.alignment_id, rows=ROWS)
        await self.training.Prepare(request, timeout=CALL_S)

    async def begin(self, key_bits: int) -> job_pb2.Turn:
        """Begin the first session under a key of one's own."""
        key = PrivateKey.generate(key_bits, SystemEntropy()).public
        turn = turn_of(self.job, 1)  # type: ignore[arg-type]
        request = pb.BeginSession(
            turn=turn,
            train_rows=ROWS,
            columns={"party_a": 3, "party_b": 3},
            learning_rate=self.job.train.learning_rate,
            theta_modulus=key.modulus_bytes,
            theta_noise_generator=key.noise_generator_bytes,
        )
        await self.training.Begin(request, timeout=CALL_S)
        return turn


async def _unheard(message: str, eta_s: float) -> None:
    """Nobody watches."""


@contextlib.asynccontextmanager
async def dominated(world: World, job: Vfb2Job, *, alone: bool = False) -> AsyncIterator[Dominated]:
    """Start party_a with three columns, in one of which a row may stand alone, and dial it as party_b."""
    columns = np.random.default_rng(4).normal(size=(ROWS, 3))
    if alone:
        columns[:, 2] = np.arange(ROWS) == 7
    world.policies.setdefault("party_a", POLICIES)
    world.write("party_a", {f"x{at}": column for at, column in enumerate(columns.T)})
    files = TlsFiles(world.root / "ca.pem", world.root / "party_b.pem", world.root / "party_b.key")
    async with world.running("party_a"):
        address = world.addresses["party_a"] or ""
        async with open_channel("party_a", address, "party_b", Security(files), Wiretap()) as channel:
            yield Dominated(PassivePartyStub(channel), Vfb2Stub(channel), job)


async def test_a_refuses_batches_in_which_it_could_solve_for_theta(world: World) -> None:
    async with dominated(world, job_of(batch_size=15)) as b:
        with pytest.raises(PeerRefused, match="at least 16 rows, because party_a has 3 columns"):
            await b.prepare()


async def test_a_refuses_a_job_in_which_a_row_is_alone_in_one_of_its_columns(world: World) -> None:
    async with dominated(world, job_of(), alone=True) as b:
        with pytest.raises(PeerRefused, match="in 1 batches party_a has a row that is alone"):
            await b.prepare()


async def test_a_takes_no_key_of_another_length_than_the_job_says(world: World) -> None:
    async with dominated(world, job_of()) as b:
        await b.prepare()
        with pytest.raises(PeerRefused, match="has 128 bits, which is not the job's"):
            await b.begin(128)
        await b.begin(KEY_BITS)


@pytest.mark.parametrize("word", ["update", "reference"])
async def test_a_does_not_listen_to_theta_in_the_clear(world: World, word: str) -> None:
    """It could be asked for its gradient then, unmasked, of rows that somebody chooses."""
    theta = np.full(1, 0.5).tobytes()
    words = {
        "update": pb.DominatorWord(update=pb.ThetaUpdate(number=1, epoch=1, rows=bytes(4), thetas=theta)),
        "reference": pb.DominatorWord(reference=pb.ReferencePart(epoch=0, thetas=theta)),
    }
    async with dominated(world, job_of()) as b:
        await b.prepare()
        turn = await b.begin(KEY_BITS)
        frames = [pb.FromDominator(turn=turn), pb.FromDominator(turn=turn, words=[words[word]])]
        with pytest.raises(PeerRefused, match="derivatives in the clear"):
            async for _ in b.training.Dominate(frames, timeout=CALL_S):
                pass


async def test_a_refuses_keys_that_are_shorter_than_its_policy_asks_for(world: World) -> None:
    world.policies["party_a"] = {**POLICIES, "min_key_bits": 2 * KEY_BITS}
    async with dominated(world, job_of()) as b:
        with pytest.raises(PeerRefused, match="asks for keys of 512 bits, the job has 256"):
            await b.prepare()


async def test_b_looks_at_the_rank_rule_itself_and_deals_the_same_batches_in_every_pass(
    tmp_path: Path,
) -> None:
    job = job_of(batch_size=20)
    turn = job_pb2.Turn(job_id="j", job_digest=job.digest())
    place = Place("party_b", job, turn, Limits(ROWS, 0, 20, ("party_b",)))
    rng, rows = np.random.default_rng(1), np.arange(ROWS)
    blocks = DenseRows(rng.normal(size=(ROWS, 2))), DenseRows(np.zeros((0, 2)))
    columns = Columns(("x0", "x1"), *blocks, rows, rows[:0], np.full(2, 0.1), None)
    labels = Labels(rng.choice([-1.0, 1.0], ROWS), None)
    engine = engine_for(GuardedKeeperEngine, place, columns, labels, tmp_path)
    engine.open_to({"party_a": 5, "party_b": 2})
    with pytest.raises(Refused, match="at least 22 rows, because party_a has 6 columns"):
        engine.open_to({"party_a": 6, "party_b": 2})
    order = engine.role._own.order
    assert len({tuple(sorted(order.batch(number))) for number in range(1, 21)}) == 2
    await engine.close()
