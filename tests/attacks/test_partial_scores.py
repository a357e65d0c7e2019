"""Partial scores are in the clear after training only: under several weights they would show the features."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest
from google.protobuf.descriptor_pool import Default

from common.errors import PeerRefused
from common.rpc.disclosure import disclosure_of
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb.disclosure_pb2 import Disclosure
from tests.attacks.byhand import ByHand, by_hand
from tests.attacks.captured import Captured
from tests.attacks.world import CALL_S, Rows, World, job_of, turn_of
from tests.rpc.parties import eventually

ROWS = Rows.drawn(40, (4, 3))
JOB = job_of(train={"max_rounds": 9})


@pytest.fixture
async def b(world: World) -> AsyncIterator[ByHand]:
    """Return a party B that has opened and prepared a job with A."""
    ROWS.write(world)
    async with by_hand(world, JOB, (4, 4)) as b:
        await b.open()
        await b.prepare(40)
        yield b


async def test_a_job_prepared_many_times_at_the_same_moment_has_one_course_of_rounds(world: World) -> None:
    """A second role would begin again from zero, after rounds and scores of the first."""
    ROWS.write(world)
    async with by_hand(world, JOB, (4, 4)) as b:
        await b.open()
        await b.align()
        request = he.PrepareRequest(turn=turn_of(JOB), train_rows=40, columns=b.columns, learning_rate=0.1)
        others = [asyncio.ensure_future(b.a.Prepare(request, timeout=CALL_S)) for _ in range(5)]
        await b.prepare(40)
        await b.round(1)
        await asyncio.gather(*others)
        with pytest.raises(PeerRefused, match="the last one applied is 1"):
            await b.scores(1)


async def test_scores_are_not_sent_before_any_round(b: ByHand) -> None:
    with pytest.raises(PeerRefused, match="before any round"):
        await b.partial_scores()


async def test_after_the_scores_no_round_begins(b: ByHand) -> None:
    await b.round(1)
    await b.partial_scores()
    with pytest.raises(PeerRefused, match="no round can follow"):
        await b.scores(2)
    with pytest.raises(PeerRefused, match="no round can follow"):
        await b.send_residuals(2, b.cipher.encrypt([1 << 32] * 40))


async def test_after_the_scores_no_round_is_finished_that_had_begun_before(b: ByHand) -> None:
    await b.round(1)
    scores = await b.scores(2)
    first = await b.partial_scores()
    with pytest.raises(PeerRefused, match="no round can follow"):
        await b.send_residuals(2, b.cipher.seal(scores, [1 << 32] * 40))
    assert np.array_equal(await b.partial_scores(), first)


async def test_scores_are_not_sent_in_the_middle_of_a_round(b: ByHand, world: World) -> None:
    """Its end would change the weights, and the scores could be had once more."""
    await b.round(1)
    residuals = b.cipher.seal(await b.scores(2), [1 << 32] * 40).to_bytes()
    half, go_on = len(residuals) // 2, asyncio.Event()

    async def messages() -> AsyncIterator[he.EncryptedResiduals]:
        yield he.EncryptedResiduals(turn=turn_of(JOB, 2), ciphertexts=residuals[:half])
        await go_on.wait()
        yield he.EncryptedResiduals(turn=turn_of(JOB, 2), ciphertexts=residuals[half:])

    applying = asyncio.ensure_future(_applied(b, messages()))
    await eventually(lambda: received(world, "EncryptedResiduals") == 2)
    with pytest.raises(PeerRefused, match="middle of a round"):
        await b.partial_scores()
    go_on.set()
    assert (await applying).turn.round == 2


def test_a_job_sends_partial_scores_after_its_last_round_only(full_batch: Captured) -> None:
    passages = full_batch.wire["party_a"]
    sent = [passage.message_type.rpartition(".")[2] for passage in passages if passage.direction == "sent"]
    first = sent.index("PartialScores")
    assert sent.count("RoundApplied") == full_batch.rounds
    assert "RoundApplied" not in sent[first:]
    assert not {"EncryptedScores", "MaskedGradient"} & set(sent[first:])


@pytest.mark.parametrize("job", ["full_batch", "two_passive"])
def test_nothing_about_rows_is_in_the_clear_but_the_partial_scores_and_which_rows_are_common(
    job: str, request: pytest.FixtureRequest
) -> None:
    captured: Captured = request.getfixturevalue(job)
    clear = set()
    for passages in captured.wire.values():
        for passage in passages:
            found = disclosure_of(Default().FindMessageTypeByName(passage.message_type))
            if found.granularity == Disclosure.PER_ROW and found.protection == Disclosure.PLAINTEXT:
                clear.add(passage.message_type)
    assert clear == {"vfl.v1.PartialScores", "vfl.v1.CommonPositions", "vfl.v1.CommonRows"}


def test_no_message_holds_a_label_a_feature_or_a_weight_as_a_number(full_batch: Captured) -> None:
    """A search of the raw bytes for the doubles that the parties hold."""
    rows = full_batch.rows
    secrets = [*rows.labels, *rows.active.ravel(), *rows.passive[:, 2:].ravel()]
    patterns = {np.float64(value).tobytes() for value in secrets}
    for passages in full_batch.wire.values():
        for passage in passages:
            cut = {passage.wire[at : at + 8] for at in range(len(passage.wire) - 7)}
            assert not cut & patterns, passage.message_type


def received(world: World, name: str) -> int:
    """Return how many messages of a type have reached party_a."""
    return sum(
        passage.direction == "received" and passage.message_type == f"vfl.v1.{name}"
        for passage in world.wire["party_a"]
    )


async def _applied(b: ByHand, messages: AsyncIterator[he.EncryptedResiduals]) -> he.RoundApplied:
    return await b.a.ApplyResiduals(messages, timeout=CALL_S)
