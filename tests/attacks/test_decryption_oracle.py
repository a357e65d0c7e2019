"""Rule 1.2.6: C is no decryption oracle: whatever is not agreed on is refused and logged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from common.crypto.cipher import CipherVector, PaillierCipher
from common.crypto.entropy import SystemEntropy
from common.crypto.private_key import PrivateKey
from common.errors import PeerRefused, Refused, UnknownJob
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from common.runtime.compute import InProcessExecutor
from coordinator.he_linear import Agreement, KeyHolder
from tests.attacks.oracle import Oracle, oracle_of
from tests.attacks.world import CALL_S, KEY_BITS, World, job_of, opening, turn_of

JOB = job_of(train={"max_rounds": 3, "loss_every": 2})
OTHER = job_of(job="other", train={"max_rounds": 9})


@pytest.fixture
async def oracle(world: World, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Oracle]:
    """Return a coordinator with a job that both parties have opened: A has 3 columns, B has 2."""
    async with oracle_of(world, JOB, caplog) as oracle:
        await oracle.open_everywhere()
        yield oracle


async def test_each_party_gets_its_own_vector_decrypted_once_a_round(oracle: Oracle) -> None:
    assert await oracle.gradient("party_a", 1, oracle.sealed(5, 6, 7)) == [5, 6, 7]
    assert await oracle.gradient("party_b", 1, oracle.sealed(8, 9)) == [8, 9]
    assert await oracle.loss("party_b", 1, oracle.sealed(4)) == 4
    assert await oracle.gradient("party_a", 2, oracle.sealed(1), oracle.sealed(2, 3)) == [1, 2, 3]


@pytest.mark.parametrize("values", [(1,), (1, 2), (1, 2, 3, 4), tuple(range(300))], ids=len)
async def test_a_vector_of_another_length_is_refused(oracle: Oracle, values: tuple[int, ...]) -> None:
    words = await oracle.refuses(oracle.gradient("party_a", 1, oracle.sealed(*values)), "party_a")
    assert "declared vectors of length 3" in words
    assert await oracle.gradient("party_a", 1, oracle.sealed(5, 6, 7)) == [5, 6, 7]


async def test_a_vector_that_grows_over_several_messages_is_refused_too(oracle: Oracle) -> None:
    parts = [oracle.sealed(1, 2), oracle.sealed(3, 4)]
    assert "sent more" in await oracle.refuses(oracle.gradient("party_a", 1, *parts), "party_a")


async def test_no_party_can_use_the_length_of_another(oracle: Oracle) -> None:
    await oracle.refuses(oracle.gradient("party_b", 1, oracle.sealed(1, 2, 3)), "party_b")


async def test_a_declared_length_cannot_be_changed_later(oracle: Oracle) -> None:
    oracle.columns["party_a"] = 30
    assert "after it had declared 3" in await oracle.refuses(oracle.open("party_a"), "party_a")
    await oracle.refuses(oracle.gradient("party_a", 1, oracle.sealed(*range(30))), "party_a")


async def test_a_second_vector_in_the_same_round_is_refused(oracle: Oracle) -> None:
    await oracle.gradient("party_a", 1, oracle.sealed(5, 6, 7))
    words = await oracle.refuses(oracle.gradient("party_a", 1, oracle.sealed(1, 2, 3)), "party_a")
    assert "already answered" in words


async def test_the_same_values_encrypted_anew_are_a_second_vector(oracle: Oracle) -> None:
    await oracle.gradient("party_a", 1, oracle.sealed(5, 6, 7))
    await oracle.refuses(oracle.gradient("party_a", 1, oracle.sealed(5, 6, 7)), "party_a")


async def test_a_retry_with_identical_bytes_gets_the_identical_answer(oracle: Oracle) -> None:
    vector, loss = oracle.sealed(5, 6, 7), oracle.sealed(4)
    assert await oracle.gradient("party_a", 1, vector) == await oracle.gradient("party_a", 1, vector)
    # However it is cut into messages: what counts are the ciphertexts.
    head, tail = vector.opened()[:1], vector.opened()[1:]
    messages = [
        he.MaskedGradient(turn=turn_of(JOB, 1), ciphertexts=part) for part in (_bytes(head), _bytes(tail))
    ]
    assert await oracle.stream("party_a", messages) == [5, 6, 7]
    assert await oracle.loss("party_b", 1, loss) == await oracle.loss("party_b", 1, loss) == 4


async def test_of_many_requests_of_a_round_at_the_same_moment_one_is_answered(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with oracle_of(world, JOB, caplog, columns=400) as oracle:
        await oracle.open_everywhere()
        vectors = [oracle.sealed(*range(number, number + 400)) for number in range(6)]
        calls = (oracle.gradient("party_a", 1, vector) for vector in vectors)
        answers = await asyncio.gather(*calls, return_exceptions=True)
    answered = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert len(answered) == 1
    assert sum(isinstance(answer, PeerRefused) for answer in answers) == 5


def test_threads_that_ask_for_a_round_at_the_same_moment_do_not_slip_past_each_other() -> None:
    holder = KeyHolder(Agreement("party_b", ("party_a",), 3, 1))
    holder.open("party_a", 1500)
    holder.open("party_b", 2)
    holder.use_key(PrivateKey.generate(KEY_BITS, SystemEntropy()))
    cipher = PaillierCipher(holder.key.public, InProcessExecutor(), SystemEntropy())
    vectors = [cipher.encrypt(range(number, number + 1500)).opened() for number in range(4)]
    together = threading.Barrier(len(vectors))

    def ask(vector: CipherVector) -> bool:
        together.wait()
        try:
            holder.decrypt_gradient("party_a", 1, vector)
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(len(vectors)) as threads:
        assert sum(threads.map(ask, vectors)) == 1


@pytest.mark.parametrize("number", [0, 4, 5, 2**32 - 1])
async def test_a_round_that_was_not_agreed_on_is_refused(oracle: Oracle, number: int) -> None:
    for party, values in (("party_a", (1, 2, 3)), ("party_b", (1, 2))):
        call = oracle.gradient(party, number, oracle.sealed(*values))
        assert "outside the agreed 3 rounds" in await oracle.refuses(call, party)


@pytest.mark.parametrize("number", [0, 5, 101])
async def test_a_loss_of_a_round_that_was_not_agreed_on_is_refused(oracle: Oracle, number: int) -> None:
    await oracle.refuses(oracle.loss("party_b", number, oracle.sealed(1)), "party_b")


async def test_an_earlier_round_is_refused_even_with_the_bytes_it_had(oracle: Oracle) -> None:
    first = oracle.sealed(5, 6, 7)
    await oracle.gradient("party_a", 1, first)
    await oracle.gradient("party_a", 3, oracle.sealed(1, 2, 3))
    for number, vector in ((1, first), (2, oracle.sealed(1, 2, 3))):
        await oracle.refuses(oracle.gradient("party_a", number, vector), "party_a")


async def test_an_unknown_job_is_refused(oracle: Oracle) -> None:
    turn = turn_of(JOB, 1, job_id="attacked-2")
    await oracle.refuses(oracle.gradient("party_a", turn, oracle.sealed(1, 2, 3)), "party_a", UnknownJob)
    await oracle.refuses(oracle.loss("party_b", turn, oracle.sealed(1)), "party_b", UnknownJob)


async def test_a_closed_job_decrypts_nothing_more(oracle: Oracle) -> None:
    request = pb.CloseJobRequest(turn=turn_of(JOB, 0), outcome=pb.FINISHED)
    await oracle.stubs["party_b"].CloseJob(request, timeout=CALL_S)
    await oracle.refuses(oracle.gradient("party_a", 1, oracle.sealed(1, 2, 3)), "party_a", UnknownJob)
    assert "has ended" in await oracle.refuses(oracle.open("party_a"), "party_a")


async def test_another_job_s_digest_is_refused(oracle: Oracle) -> None:
    await oracle.open("party_a", OTHER, "other-1")
    for digest in (OTHER.digest(), b"", bytes(32)):
        turn = pb.Turn(job_id="attacked-1", job_digest=digest, round=1)
        call = oracle.gradient("party_a", turn, oracle.sealed(1, 2, 3))
        assert "digest differs" in await oracle.refuses(call, "party_a")
        await oracle.refuses(oracle.loss("party_b", turn, oracle.sealed(1)), "party_b")


async def test_a_job_cannot_be_opened_again_as_another_one(oracle: Oracle) -> None:
    """More rounds, or a loss in every round, would be more decryptions."""
    longer = job_of(train={"max_rounds": 1000, "loss_every": 1})
    assert "digest differs" in await oracle.refuses(oracle.open("party_b", longer), "party_b")
    await oracle.refuses(oracle.gradient("party_b", turn_of(longer, 4), oracle.sealed(1, 2)), "party_b")


async def test_a_job_cannot_be_opened_under_the_digest_of_another(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever opens first decides what C takes the agreement to be; the other compares the digest only."""
    async with oracle_of(world, JOB, caplog) as oracle:
        request = opening(job_of(train={"max_rounds": 1000}), "party_a", "coordinator")
        request.turn.job_digest = JOB.digest()
        call = oracle.stubs["party_a"].OpenJob(request, timeout=CALL_S)
        assert "does not have the digest" in await oracle.refuses(call, "party_a")


async def test_one_stream_speaks_of_one_turn(oracle: Oracle) -> None:
    parts = (1, oracle.sealed(1)), (2, oracle.sealed(2, 3))
    messages = [he.MaskedGradient(turn=turn_of(JOB, at), ciphertexts=part.to_bytes()) for at, part in parts]
    assert "two turns" in await oracle.refuses(oracle.stream("party_a", messages), "party_a")
    assert "empty stream" in await oracle.refuses(oracle.stream("party_a", []), "party_a")


@pytest.mark.parametrize("party", ["party_a2", "stranger"])
async def test_a_party_that_the_job_does_not_name_gets_nothing(oracle: Oracle, party: str) -> None:
    turn = turn_of(JOB, 1)
    stub = oracle.stubs[party]
    closing = pb.CloseJobRequest(turn=turn, outcome=pb.FAILED)
    calls: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: oracle.gradient(party, 1, oracle.sealed(1, 2, 3)),
        lambda: oracle.loss(party, 1, oracle.sealed(1)),
        lambda: stub.GetPublicKey(he.PublicKeyRequest(turn=turn), timeout=CALL_S),
        lambda: stub.CloseJob(closing, timeout=CALL_S),
        lambda: oracle.open(party),
        lambda: anext(aiter(stub.Attend(pb.Attendance(turn=turn), timeout=CALL_S))),
    )
    for call in calls:
        assert f"{party} may not" in await oracle.refuses(call(), party)
    assert await oracle.gradient("party_a", 1, oracle.sealed(5, 6, 7)) == [5, 6, 7]


@pytest.mark.parametrize("opener", ["party_a", "party_b"])
async def test_nothing_is_decrypted_before_both_parties_have_opened_the_job(
    world: World, caplog: pytest.LogCaptureFixture, opener: str
) -> None:
    other = {"party_a": "party_b", "party_b": "party_a"}[opener]
    async with oracle_of(world, JOB, caplog) as oracle:
        await oracle.open(opener)
        await oracle.open(opener)
        content = bytes(range(1, 65)) * 3
        message = he.MaskedGradient(turn=turn_of(JOB, 1), ciphertexts=content)
        loss = he.EncryptedLoss(turn=turn_of(JOB, 1), ciphertext=content[:64])
        key = he.PublicKeyRequest(turn=turn_of(JOB))
        stub = oracle.stubs[opener]
        calls: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: anext(aiter(stub.DecryptGradient(iter([message]), timeout=CALL_S))),
            lambda: stub.DecryptLoss(loss, timeout=CALL_S),
            lambda: stub.GetPublicKey(key, timeout=CALL_S),
        )
        for call in calls:
            assert f"not open yet: {other} is missing" in await oracle.refuses(call(), opener)


async def test_a_party_cannot_open_a_job_in_the_name_of_another(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The name is the certificate's: A that says it is B is refused, and B's opening stays missing."""
    async with oracle_of(world, JOB, caplog) as oracle:
        await oracle.open("party_a")
        oracle.stubs["party_b"] = oracle.stubs["party_a"]
        words = await oracle.refuses(oracle.open("party_b"), "party_a")
        assert "calls itself 'party_b'" in words
        call = oracle.stubs["party_a"].GetPublicKey(he.PublicKeyRequest(turn=turn_of(JOB)), timeout=CALL_S)
        assert "party_b is missing" in await oracle.refuses(call, "party_a")


async def test_a_cannot_have_a_loss_decrypted(oracle: Oracle) -> None:
    assert "only party_b" in await oracle.refuses(oracle.loss("party_a", 1, oracle.sealed(1)), "party_a")


async def test_a_loss_is_decrypted_only_in_the_rounds_that_the_job_names(oracle: Oracle) -> None:
    words = await oracle.refuses(oracle.loss("party_b", 2, oracle.sealed(1)), "party_b")
    assert "loss of round 2" in words
    assert await oracle.loss("party_b", 3, oracle.sealed(4)) == 4


async def test_a_job_without_losses_decrypts_none(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async with oracle_of(world, job_of(train={"loss_every": 0}), caplog) as oracle:
        await oracle.open_everywhere()
        await oracle.refuses(oracle.loss("party_b", 1, oracle.sealed(1)), "party_b")


@pytest.mark.parametrize("values", [(), (1, 2), (1, 2, 3)], ids=len)
async def test_a_loss_is_one_ciphertext(oracle: Oracle, values: tuple[int, ...]) -> None:
    await oracle.refuses(oracle.loss("party_b", 1, oracle.sealed(*values)), "party_b")
    assert await oracle.loss("party_b", 1, oracle.sealed(4)) == 4


async def test_a_second_loss_in_the_same_round_is_refused(oracle: Oracle) -> None:
    await oracle.loss("party_b", 1, oracle.sealed(4))
    await oracle.refuses(oracle.loss("party_b", 1, oracle.sealed(5)), "party_b")


@pytest.mark.parametrize("what", ["zero", "N", "N²", "N² + 1", "torn"])
async def test_what_is_no_ciphertext_is_not_decrypted(oracle: Oracle, what: str) -> None:
    assert oracle.cipher is not None
    key, good = oracle.cipher.key, oracle.sealed(1, 2).to_bytes()
    square = key.modulus_squared
    number = {"zero": 0, "N": key.modulus, "N²": square, "N² + 1": square + 1, "torn": 1}[what]
    bad = number.to_bytes(key.ciphertext_bytes, "big")[: -1 if what == "torn" else None]
    message = he.MaskedGradient(turn=turn_of(JOB, 1), ciphertexts=good + bad)
    assert "rejected" in await oracle.refuses(oracle.stream("party_a", [message]), "party_a")


def _bytes(vector: object) -> bytes:
    """Return a vector's bytes as an attacker takes them, who is not held back by a type."""
    return bytes(vector._content)  # type: ignore[attr-defined]
