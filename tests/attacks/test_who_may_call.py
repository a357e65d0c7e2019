"""Every call is for the party that the job, or the house, names for it: nobody else gets an answer."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from common.crypto.private_key import PrivateKey
from common.errors import PeerRefused, UnknownJob
from common.rpc.greeting import make_greeting
from common.rpc.pb import active_party_pb2 as active
from common.rpc.pb import job_pb2 as pb
from common.rpc.pb import passive_party_pb2 as passive
from common.runtime.config.job import JobConfig
from tests.attacks.byhand import by_hand
from tests.attacks.oracle import oracle_of
from tests.attacks.world import CALL_S, Rows, World, job_of, opening, turn_of

JOB = job_of()
OTHERS = ("coordinator", "party_a2", "stranger", "party_a")


def job_methods(module: Any, service: str) -> list[MethodDescriptor]:
    """Return the methods of a service but its greeting, so that a new one is attacked as well."""
    return [
        method for method in module.DESCRIPTOR.services_by_name[service].methods if method.name != "Greet"
    ]


async def called(stub: Any, method: MethodDescriptor, job: JobConfig, caller: str) -> Any:
    """Call a method with a request that fits the job; return the (first) answer."""
    if method.name == "OpenJob":
        request = opening(job, caller, "party_a")
    else:
        kind = GetMessageClass(method.input_type)
        has_turn = "turn" in method.input_type.fields_by_name
        request = kind(turn=turn_of(job, 1)) if has_turn else kind()
    message = iter([request]) if method.client_streaming else request
    call = getattr(stub, method.name)(message, timeout=CALL_S)
    return await (anext(aiter(call)) if method.server_streaming else call)


@pytest.fixture
async def a(world: World) -> AsyncIterator[World]:
    """Return a world in which party_a has an open job of party_b, prepared."""
    Rows.drawn(40, (4, 3)).write(world)
    async with by_hand(world, JOB, (4, 4)) as b:
        await b.open()
        await b.prepare(40)
        yield world


@pytest.mark.parametrize("caller", OTHERS)
@pytest.mark.parametrize("method", job_methods(passive, "PassiveParty"), ids=lambda method: method.name)
async def test_a_answers_calls_about_a_job_to_its_active_party_only(
    a: World, caplog: pytest.LogCaptureFixture, caller: str, method: MethodDescriptor
) -> None:
    async with a.dialled("party_a", caller) as stub:
        with pytest.raises(PeerRefused, match=f"{caller} may not|does not offer") as refusal:
            await called(stub, method, JOB, caller)
    logged = any(f"{method.name} from {caller} " in line for line in caplog.messages)
    assert logged or "does not offer" in refusal.value.what


@pytest.mark.parametrize("caller", ["coordinator", "party_a2", "stranger"])
async def test_a_opens_no_job_for_a_party_that_is_not_its_active_one(world: World, caller: str) -> None:
    Rows.drawn(40, (4, 3)).write(world)
    async with by_hand(world, JOB, (4, 4)), world.dialled("party_a", caller) as stub:
        for preflight in (True, False):
            request = opening(JOB, caller, "party_a")
            request.preflight = preflight
            with pytest.raises(PeerRefused, match="may not open this job"):
                await stub.OpenJob(request, timeout=CALL_S)


async def test_a_agrees_to_no_job_with_a_party_outside_its_policy(world: World) -> None:
    """The stranger names itself as the active party, which is its right; A's policy is A's."""
    world.policies["party_a"] = {**world.policy, "peers": ["party_b", "coordinator"]}
    Rows.drawn(40, (4, 3)).write(world)
    job = job_of(active="stranger")
    async with by_hand(world, JOB, (4, 4)), world.dialled("party_a", "stranger") as stub:
        request = opening(job, "stranger", "party_a")
        request.greeting.CopyFrom(make_greeting("stranger", "active"))
        with pytest.raises(PeerRefused, match="policy of party_a does not allow jobs with stranger"):
            await stub.OpenJob(request, timeout=CALL_S)


@pytest.mark.parametrize("caller", ["party_a", "coordinator", "stranger"])
@pytest.mark.parametrize("method", job_methods(active, "ActiveParty"), ids=lambda method: method.name)
async def test_b_s_job_control_takes_no_certificate_but_b_s_own(
    world: World, caplog: pytest.LogCaptureFixture, caller: str, method: MethodDescriptor
) -> None:
    async with world.running("party_b"), world.dialled("party_b", caller) as stub:
        with pytest.raises(PeerRefused, match=f"{caller} may not make this call"):
            await called(stub, method, JOB, caller)
    assert any(f"{method.name} from {caller} " in line for line in caplog.messages)


async def test_a_job_that_has_ended_tells_nothing_to_parties_it_did_not_name(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    closing = pb.CloseJobRequest(turn=turn_of(JOB, 1), outcome=pb.FAILED, reason="too dear")
    async with oracle_of(world, JOB, caplog) as oracle:
        await oracle.open_everywhere()
        first = await oracle.stubs["party_b"].CloseJob(closing, timeout=CALL_S)
        assert await oracle.stubs["party_a"].CloseJob(closing, timeout=CALL_S) == first
        for party in ("party_a2", "stranger"):
            for call in (
                lambda party=party: oracle.stubs[party].CloseJob(closing, timeout=CALL_S),
                lambda party=party: oracle.gradient(party, 1, oracle.sealed(1, 2, 3)),
            ):
                words = await oracle.refuses(call(), party, UnknownJob)
                assert "too dear" not in words
                assert "ended" not in words


async def test_a_key_dies_with_its_job(world: World, caplog: pytest.LogCaptureFixture) -> None:
    closing = pb.CloseJobRequest(turn=turn_of(JOB), outcome=pb.FINISHED)

    def keys() -> int:
        gc.collect()
        assert oracle.cipher is not None
        found = [thing for thing in gc.get_objects() if isinstance(thing, PrivateKey)]
        return sum(key.public == oracle.cipher.key for key in found)

    async with oracle_of(world, JOB, caplog) as oracle:
        await oracle.open_everywhere()
        assert keys() == 1
        await oracle.stubs["party_b"].CloseJob(closing, timeout=CALL_S)
        assert keys() == 0


async def test_no_state_directory_and_no_message_ever_holds_a_private_key(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither p nor q, in any of the spellings that a file or a message would use."""
    async with oracle_of(world, JOB, caplog) as oracle:
        await oracle.open_everywhere()
        assert oracle.cipher is not None
        keys = [thing for thing in gc.get_objects() if isinstance(thing, PrivateKey)]
        (key,) = [key for key in keys if key.public == oracle.cipher.key]
        primes = [int(half.prime) for half in key._halves]
        closing = pb.CloseJobRequest(turn=turn_of(JOB), outcome=pb.FINISHED)
        await oracle.stubs["party_b"].CloseJob(closing, timeout=CALL_S)
    spellings = [
        text
        for prime in primes
        for text in (str(prime).encode(), f"{prime:x}".encode(), prime.to_bytes(16, "big"))
    ]
    files = [path.read_bytes() for path in world.root.rglob("*") if path.is_file()]
    wires = [passage.wire for passage in world.wire["coordinator"]]
    logged = [caplog.text.encode()]
    assert not [one for one in (*files, *wires, *logged) for text in spellings if text in one]


async def test_a_job_is_closed_in_one_of_three_ways_and_for_a_reason_of_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    text = "\x1b[2Jgone\r\nINFO vfl: done" + "x" * 100_000
    async with oracle_of(world, JOB, caplog) as oracle:
        await oracle.open_everywhere()
        for outcome in (0, 77):
            closing = pb.CloseJobRequest(turn=turn_of(JOB), reason=text)
            closing.outcome = outcome  # type: ignore[assignment] # the wire takes any number
            await oracle.refuses(oracle.stubs["party_b"].CloseJob(closing, timeout=CALL_S), "party_b")
        assert await oracle.gradient("party_a", 1, oracle.sealed(5, 6, 7)) == [5, 6, 7]
        closing = pb.CloseJobRequest(turn=turn_of(JOB), outcome=pb.FAILED, reason=text)
        await oracle.stubs["party_b"].CloseJob(closing, timeout=CALL_S)
        words = await oracle.refuses(oracle.open("party_a"), "party_a")
    assert "gone  INFO vfl: done" in words
    kept = next(world.root.glob("state/coordinator/jobs/*/status.json")).read_text()
    assert len(kept) < 5000


async def test_what_a_party_says_of_itself_does_not_count_against_its_certificate(world: World) -> None:
    Rows.drawn(40, (4, 3)).write(world)
    async with by_hand(world, JOB, (4, 4)), world.dialled("party_a", "coordinator") as stub:
        with pytest.raises(PeerRefused, match="calls itself 'party_b'"):
            await stub.OpenJob(opening(JOB, "party_b", "party_a"), timeout=CALL_S)
        with pytest.raises(PeerRefused, match="calls itself 'party_b'"):
            await stub.Greet(make_greeting("party_b", "active"), timeout=CALL_S)


async def test_a_job_opened_twice_at_the_same_moment_is_opened_once(world: World) -> None:
    """A second opening would put a fresh state in the place of one that has sent its scores already."""
    Rows.drawn(40, (4, 3)).write(world)
    async with by_hand(world, JOB, (4, 4)) as b:
        request = opening(JOB, "party_b", "party_a")
        calls = (b.a.OpenJob(request, timeout=CALL_S) for _ in range(3))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        kept = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert kept == [kept[0]] * len(kept)
        assert await b.a.OpenJob(request, timeout=CALL_S) == kept[0]
        openings = [
            passage
            for passage in world.wire["coordinator"]
            if passage.peer == "party_a" and passage.message_type == "vfl.v1.OpenJobRequest"
        ]
        assert len(openings) == 1
