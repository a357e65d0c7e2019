"""A job that is opened again must not tell anybody more than it would have told without a loss."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest

from common.crypto.cipher import PaillierCipher
from common.crypto.entropy import SystemEntropy
from common.crypto.paillier import PublicKey
from common.errors import ColonnadeError, PeerRefused, UnknownJob
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.runtime.checkpoint import MAX_ATTEMPTS
from common.runtime.compute import InProcessExecutor
from tests.attacks.byhand import ByHand, by_hand
from tests.attacks.world import CALL_S, Rows, World, job_of, opening

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


async def rounds(b: ByHand, last: int, first: int = 1) -> None:
    for number in range(first, last + 1):
        await b.round(number)


async def decrypted(b: ByHand, number: int) -> None:
    """Have something decrypted for B in a round."""
    assert b.cipher is not None
    message = he.MaskedGradient(turn=b.turn(number), ciphertexts=b.cipher.encrypt([7] * 4).to_bytes())
    async for _ in b.c.DecryptGradient(iter([message]), timeout=CALL_S):
        pass


async def test_after_the_scores_a_later_attempt_trains_no_further(b: ByHand) -> None:
    await rounds(b, 3)
    first = await b.partial_scores()
    await b.open_again()
    for earlier in (0, 2):
        with pytest.raises(PeerRefused, match="cannot go on after round"):
            await b.go_on(earlier)
    await b.go_on(3)
    with pytest.raises(PeerRefused, match="no round can follow"):
        await b.scores(4)
    assert np.array_equal(await b.partial_scores(), first)


async def test_a_later_attempt_leads_a_back_by_one_round_at_most(b: ByHand) -> None:
    await rounds(b, 5)
    await b.open_again()
    standing = await b.a.Stand(he.StandingRequest(turn=b.turn()), timeout=CALL_S)
    assert list(standing.rounds) == [4, 5]
    for earlier in (0, 1, 3):
        with pytest.raises(PeerRefused, match="cannot go on after round"):
            await b.go_on(earlier)
    await b.go_on(4)
    await rounds(b, 6, first=5)
    with pytest.raises(PeerRefused, match="gone on already"):
        await b.go_on(4)


async def test_a_later_attempt_does_not_begin_anew(b: ByHand) -> None:
    await rounds(b, 2)
    await b.open_again()
    with pytest.raises(PeerRefused, match="nobody has said after which one"):
        await b.scores(1)
    with pytest.raises(PeerRefused, match="before any round"):
        await b.partial_scores()


async def test_a_later_attempt_goes_on_with_the_very_same_weights(b: ByHand) -> None:
    await rounds(b, 2)
    await b.open_again()
    await b.go_on(2)
    scores = await b.partial_scores()
    expected = ROWS.passive @ b_weights(2)
    assert np.allclose(np.sort(scores), np.sort(expected))


def b_weights(steps: int) -> np.ndarray:
    """Return what A's weights are after rounds whose d is A's own score plus one."""
    weights = np.zeros(4)
    for _ in range(steps):
        gradient = ROWS.passive.T @ (ROWS.passive @ weights + 1) / 40 + 1e-3 * weights
        weights = weights - 0.1 * gradient
    return weights


async def only_the_last_round(b: ByHand) -> None:
    """Check that of rounds 1 to 4, decrypted before, the last one is decrypted once more, and none else."""
    for earlier in (1, 2, 3):
        with pytest.raises(PeerRefused, match="was answered in an earlier attempt"):
            await decrypted(b, earlier)
    await decrypted(b, 4)
    with pytest.raises(PeerRefused, match="already answered"):
        await decrypted(b, 4)


async def test_the_key_holder_decrypts_the_last_round_once_more_in_an_attempt_and_none_before(
    b: ByHand,
) -> None:
    await decrypted(b, 4)
    for _ in range(3):
        await b.open_again()
        await only_the_last_round(b)


async def test_a_key_holder_that_was_restarted_knows_what_it_has_decrypted(b: ByHand, world: World) -> None:
    await decrypted(b, 4)
    b.attempt += 1
    async with world.running("coordinator"):  # once more, on the same state
        for party in ("party_a", "party_b"):
            request = opening(JOB, party, "coordinator", columns=4)
            request.turn.CopyFrom(b.turn())
            async with world.dialled("coordinator", party) as stub:
                await stub.OpenJob(request, timeout=CALL_S)
        async with world.dialled("coordinator", "party_b") as b.c:
            reply = await b.c.GetPublicKey(he.PublicKeyRequest(turn=b.turn()), timeout=CALL_S)
            key = PublicKey.from_bytes(reply.modulus, reply.noise_generator)
            assert b.cipher is not None
            assert key.key_id != b.cipher.key.key_id
            b.cipher = PaillierCipher(key, InProcessExecutor(), SystemEntropy())
            await only_the_last_round(b)


async def test_calls_of_an_earlier_attempt_find_no_job(b: ByHand) -> None:
    await rounds(b, 1)
    await b.open_again()
    b.attempt -= 1
    with pytest.raises(UnknownJob, match="attempt 0"):
        await b.scores(2)
    with pytest.raises(UnknownJob, match="attempt 0"):
        await decrypted(b, 2)
    with pytest.raises(UnknownJob, match="attempt 0"):
        await b.a.CloseJob(pb.CloseJobRequest(turn=b.turn(1), outcome=pb.FAILED), timeout=CALL_S)


async def test_attempts_are_bounded(b: ByHand) -> None:
    b.attempt = MAX_ATTEMPTS
    with pytest.raises(PeerRefused, match=f"{MAX_ATTEMPTS} times at most"):
        await b.open_again()


async def test_a_later_attempt_on_other_data_is_refused(b: ByHand, world: World) -> None:
    await rounds(b, 1)
    changed = ROWS.passive.copy()
    changed[3, 0] += 1  # One row more or less tells that row apart from all others.
    Rows(changed, ROWS.active, ROWS.labels).write(world)
    with pytest.raises(ColonnadeError, match="has changed"):
        await b.open_again()


async def test_an_attempt_of_another_job_under_the_same_id_is_refused(b: ByHand) -> None:
    b.job = job_of(train={"max_rounds": 8})
    with pytest.raises(PeerRefused, match="digest differs"):
        await b.open_again()


async def test_nobody_else_opens_or_closes_a_later_attempt(b: ByHand, world: World) -> None:
    await rounds(b, 1)
    b.attempt += 1
    request = opening(JOB, "party_a2", "party_a")
    request.turn.CopyFrom(b.turn())
    async with world.dialled("party_a", "party_a2") as stranger:
        with pytest.raises(PeerRefused):
            await stranger.OpenJob(request, timeout=CALL_S)
        with pytest.raises(PeerRefused):
            await stranger.CloseJob(pb.CloseJobRequest(turn=b.turn(1), outcome=pb.FAILED), timeout=CALL_S)
    b.attempt -= 1
    await b.round(2)
