"""A dominator of VFB² that is killed at any moment knows every update that anybody has got of it."""

from __future__ import annotations

import asyncio
import shutil

import numpy as np

from common.crypto.entropy import SeededEntropy
from common.glm.asynchronous import EpochEnd
from common.rpc.pb import job_pb2
from common.rpc.pb import vfb2_pb2 as pb
from common.runtime.vfb2.columns import Labels
from common.runtime.vfb2.outbound import Outbound
from common.runtime.vfb2.place import Place
from common.runtime.vfb2.sums import open_shares
from common.runtime.vfb2.wire import Limits
from party_b.asynchronous.engine import KeeperEngine
from party_b.asynchronous.guest import engine_for
from tests.attacks.vfb2_world import job_of
from tests.runtime.test_vfb2_engine import BATCH, ROWS, columns, engine

UPDATES, EPOCH = 60, 10


async def test_what_was_sent_is_known_to_the_process_that_comes_back_whenever_the_first_was_killed(tmp_path):
    job = job_of(active="party_b", passive=["party_a"], train={"update": "saga", "batch_size": BATCH})
    collaborator = engine(made(tmp_path / "a"), job)
    keeper = dominator(made(tmp_path / "b"), job)
    there, back = Outbound(), Outbound()
    keeper.begin(1, open_shares(job, "party_b", SeededEntropy(b"b"), None, {}), {})
    keeper.connect({"party_a": there})
    keeper.begin_answers({})
    collaborator._streams["party_b"] = back
    collaborator._acknowledge("party_b")
    keeper.end_epoch(EpochEnd(0, {}))
    collaborator.hear("party_b", pb.FromDominator(words=[_end(0, 0)]))
    keeper.go_alone(UPDATES * BATCH)
    heard, killed = 0, 0
    while keeper.role.outbox.sent < UPDATES:
        while len(back):
            keeper.hear_back("party_a", pb.ToDominator(words=back._next()))
        sent = keeper.role.outbox.sent
        if sent >= EPOCH * keeper.collaboration.epoch and not keeper._unsent:
            keeper.tell(_end(keeper.collaboration.epoch, sent))
            keeper.end_epoch(EpochEnd(keeper.collaboration.epoch, {"party_b": sent}))
        words = there._next() if len(there) else []
        heard = max([heard, *(word.update.number for word in words)])
        # At this moment the words have left. What the first process has written is all that is left of it.
        again = dominator(left_of(tmp_path / "b", tmp_path / f"killed-{killed}"), job)
        assert again.role.outbox.sent >= heard
        if again.role.outbox.sent == keeper.collaboration.progress.count_of("party_b"):
            assert again.collaboration.progress.digest == keeper.collaboration.progress.digest
            assert np.array_equal(again.collaboration.block.weights, keeper.collaboration.block.weights)
        await again.close()
        killed += 1
        collaborator.hear("party_b", pb.FromDominator(words=words))
        await asyncio.sleep(0)
    assert keeper.collaboration.epoch > 3
    assert killed > 10
    await keeper.close()
    await collaborator.close()


def left_of(folder, copied):
    """Copy a folder as it is at one moment: again, if the writing thread has just removed a file."""
    while True:
        try:
            return shutil.copytree(folder, copied)
        except (shutil.Error, FileNotFoundError):
            shutil.rmtree(copied, ignore_errors=True)


def made(folder):
    folder.mkdir()
    return folder


def dominator(folder, job):
    """Return the keeper's engine, standing where its journal says."""
    turn = job_pb2.Turn(job_id="j", job_digest=job.digest())
    place = Place("party_b", job, turn, Limits(ROWS, 4, BATCH, ("party_b",)))
    return engine_for(KeeperEngine, place, columns(), Labels(np.ones(ROWS), None), folder)


def _end(epoch, sent):
    return pb.DominatorWord(epoch_end=pb.EpochEnd(epoch=epoch, cut={"party_b": sent}))
