"""Attack: noise is prepared in advance; does a power ever serve twice, so that a quotient shows values?"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from common.crypto.noise_stock import NoiseStock
from common.rpc.pb.active_party_pb2 import JOB_FINISHED
from tests.attacks.captured import Captured, noise_of
from tests.attacks.world import Rows, World, job_of


def test_no_two_ciphertexts_on_the_wire_share_their_noise_with_a_stock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_out: list[bytes] = []
    take = NoiseStock.take

    def noted(stock: NoiseStock, count: int) -> list[bytes]:
        taken = take(stock, count)
        handed_out.extend(taken)
        return taken

    monkeypatch.setattr(NoiseStock, "take", noted)
    rows, rounds = Rows.drawn(60, (4, 3)), 12
    job = job_of(train={"max_rounds": rounds, "learning_rate": 0.05})
    with ThreadPoolExecutor(2) as executor:
        world = World(tmp_path / "world", executor=executor)
        rows.write(world, job.passive)

        async def run() -> None:
            async with world.running("coordinator", *job.passive, "party_b"):
                record = await world.train(job)
            assert record.status == JOB_FINISHED, record.error.what

        asyncio.run(run())
    wire = Captured(world.wire, rows, rounds)
    ciphertexts = wire.sent_ciphertexts()
    assert len({noise_of(ciphertext, wire.key.modulus) for ciphertext in ciphertexts}) == len(ciphertexts)
    assert len(ciphertexts) > rounds * 2 * 60
    # The attack means something only if the stock was used.
    assert len(handed_out) > 60
    assert len(set(handed_out)) == len(handed_out)
