"""What each side received while ids were aligned, searched with a dictionary of all ids."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.crypto.psi_curve import SecretScalar, hash_to_curve, multiply, split_points
from common.errors import PeerRefused
from common.rpc.pb import align_pb2
from common.rpc.pb.active_party_pb2 import JOB_FAILED, JOB_FINISHED, JobRecord
from tests.attacks.byhand import ByHand, by_hand
from tests.attacks.world import CALL_S, POLICY, Rows, World, job_of, turn_of

P = 2**255 - 19
ORDER_8 = 325606250916557431795983626356110631294008115727848805560023387167927233504  # RFC 7748, 7
JOB = job_of(train={"max_rounds": 1})
KEY = SecretScalar(b"k" * 32)
IDS = {
    "party_a": [f"customer-{number:05d}" for number in range(0, 60)],
    "party_a2": [f"customer-{number:05d}" for number in range(20, 90)],
    "party_b": [f"customer-{number:05d}" for number in range(10, 80)],
}
DICTIONARY = sorted({one for ids in IDS.values() for one in ids})


@dataclass(frozen=True)
class Aligned:
    """A job that ran, its wire, and the scalars that its parties drew."""

    world: World
    record: JobRecord
    scalars: Mapping[str, SecretScalar]

    def received(self, party: str) -> bytes:
        """Return every byte that a party received from others."""
        passages = self.world.wire[party]
        return b"|".join(one.wire for one in passages if one.direction == "received")

    def messages(self, party: str, direction: str, name: str) -> list[Any]:
        """Return the messages of one type at one party."""
        kind = getattr(align_pb2, name)
        return [
            kind.FromString(one.wire)
            for one in self.world.wire[party]
            if one.direction == direction and one.message_type == f"vfl.v1.{name}"
        ]

    def sets(self, party: str, direction: str) -> list[list[bytes]]:
        """Return the sets of blinded ids at one party; each came in one chunk here."""
        messages = self.messages(party, direction, "BlindedIds")
        return [split_points(message.points) for message in messages if message.points]


def write(world: World, party: str, ids: list[str]) -> None:
    """Write a party's table, its rows shuffled."""
    generator = np.random.default_rng(len(ids))
    shuffled = random.Random(party).sample(ids, len(ids))
    names = ["id", f"{party}0", *(["y"] if party == "party_b" else [])]
    lines = [",".join([one, *map(repr, generator.normal(size=len(names) - 1).tolist())]) for one in shuffled]
    (world.root / f"{party}.csv").write_text("\n".join([",".join(names), *lines]) + "\n")


def run(root: Path, job: Any = JOB, policies: Mapping[str, Any] | None = None) -> Aligned:
    """Run a job; the scalars are noted as they are drawn, in the order in which the parties need them."""
    world = World(root)
    world.policies.update(policies or {})
    parties = (*job.passive, "party_b")
    for party in parties:
        write(world, party, IDS[party])
    drawn: list[SecretScalar] = []
    draw = SecretScalar.draw

    def noted(entropy: Any) -> SecretScalar:
        drawn.append(draw(entropy))
        return drawn[-1]

    async def conducted() -> JobRecord:
        async with world.running("coordinator", *parties):
            return await world.train(job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecretScalar, "draw", noted)
        record = asyncio.run(conducted())
    return Aligned(world, record, {"party_b": drawn[0], **whose(drawn[1:], job.passive, world)})


def whose(scalars: list[SecretScalar], parties: tuple[str, ...], world: World) -> dict[str, SecretScalar]:
    """Tell which passive party drew which scalar: its first id must be among what it sent."""
    sent = {
        party: b"".join(one.wire for one in world.wire[party] if one.direction == "sent") for party in parties
    }
    return {
        party: scalar
        for party in parties
        for scalar in scalars
        if multiply([hash_to_curve(IDS[party][0])], scalar) in sent[party]
    }


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Aligned:
    """Return a job of one passive party and the active one."""
    return run(tmp_path_factory.mktemp("two-sets"))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Aligned:
    """Return a job of two passive parties and the active one."""
    return run(
        tmp_path_factory.mktemp("three-sets"),
        job_of(passive=["party_a", "party_a2"], train={"max_rounds": 1}),
    )


@pytest.fixture(params=["two", "three"])
def aligned(request: pytest.FixtureRequest) -> Aligned:
    """Return each of the jobs."""
    result: Aligned = request.getfixturevalue(request.param)
    assert result.record.status == JOB_FINISHED, result.record.error.what
    return result


def digests(aligned: Aligned, one: str) -> Iterator[bytes]:
    """Yield what somebody who guesses an id might look for."""
    data = one.encode()
    yield data
    names = ("md5", "sha1", "sha256", "sha512", "blake2b", "blake2s", "sha3_256")
    public = [b"", aligned.record.job_id.encode(), JOB.digest(), b"colonnade psi v1", *alignment_ids(aligned)]
    for name in names:
        for key in public:
            for digest in (
                hashlib.new(name, data),
                hashlib.new(name, key + data),
                hashlib.new(name, data + key),
            ):
                yield digest.digest()[:16]
                yield digest.hexdigest()[:32].encode()
            yield hmac.digest(key, data, name)[:16]


def alignment_ids(aligned: Aligned) -> set[bytes]:
    return {message.alignment_id for message in aligned.messages("party_b", "sent", "CommonRows")}


def test_no_id_and_no_digest_of_one_was_received_by_anybody(aligned: Aligned) -> None:
    for party in aligned.world.wire:
        received = aligned.received(party)
        assert not [one for one in DICTIONARY if any(digest in received for digest in digests(aligned, one))]


def test_no_point_of_an_id_was_received_bare_or_under_scalars_that_the_receiver_knows(
    aligned: Aligned,
) -> None:
    for party, own in aligned.scalars.items():
        received = aligned.received(party)
        bare = [hash_to_curve(one) for one in DICTIONARY]
        guesses = (bytes(32), JOB.digest(), hashlib.sha256(JOB.digest()).digest())
        for scalar in (own, *map(SecretScalar, guesses)):
            once = split_points(multiply(bare, scalar))
            twice = split_points(multiply(once, scalar))
            assert not [point for point in (*bare, *once, *twice) if point in received]


def test_the_search_would_find_a_point_if_one_knew_the_other_s_scalar(two: Aligned) -> None:
    """Otherwise the tests above would prove nothing."""
    at_b = split_points(multiply([hash_to_curve(one) for one in IDS["party_a"]], two.scalars["party_a"]))
    assert all(point in two.received("party_b") for point in at_b)


def test_no_party_received_another_s_scalar(aligned: Aligned) -> None:
    for party in aligned.world.wire:
        for owner, scalar in aligned.scalars.items():
            if owner != party:
                secret = scalar.multiplier().private_bytes_raw()
                assert secret not in aligned.received(party)
                assert secret[1:31] not in aligned.received(party)


def test_every_set_on_the_wire_is_sorted(aligned: Aligned) -> None:
    for party in aligned.scalars:
        for direction in ("sent", "received"):
            for points in aligned.sets(party, direction):
                assert points == sorted(points)


def test_no_passive_party_can_compare_two_sets(three: Aligned) -> None:
    """Equal points under equal scalars would show it how many ids two others share."""
    for party in ("party_a", "party_a2"):
        sets = [set(points) for points in (*three.sets(party, "received"), *three.sets(party, "sent"))]
        shared = [len(left & right) for at, left in enumerate(sets) for right in sets[at + 1 :]]
        assert len(sets) >= 4
        assert not any(shared)


def test_the_aligned_rows_are_exactly_the_common_ids(aligned: Aligned) -> None:
    parties = aligned.scalars
    common = set.intersection(*(set(IDS[party]) for party in parties))
    for party in parties.keys() - {"party_b"}:
        assert [one.rows for one in aligned.messages(party, "sent", "CommonRowsSet")] == [len(common)]


def test_the_own_policy_of_b_ends_a_job_with_too_few_before_any_position_is_sent(tmp_path: Path) -> None:
    result = run(tmp_path, policies={"party_b": {**POLICY, "min_intersection": 51}})
    assert result.record.status == JOB_FAILED
    assert "50 ids are common to all parties, 51 are needed" in result.record.error.what
    for party in result.scalars:
        for direction in ("sent", "received"):
            assert not result.messages(party, direction, "CommonPositions")
            assert not result.messages(party, direction, "CommonRows")


def test_the_own_policy_of_a_shows_nothing_to_a_b_that_would_go_on(tmp_path: Path) -> None:
    result = run(tmp_path, policies={"party_a": {**POLICY, "min_intersection": 51}})
    assert result.record.status == JOB_FAILED
    assert "50 common ids are fewer than the 51 that the policy" in result.record.error.what
    assert not result.messages("party_a", "sent", "CommonPositions")
    assert not result.messages("party_a", "sent", "CommonRowsSet")
    assert not list((result.world.root / "state").rglob("*.alignment"))


@pytest.fixture
async def b(world: World) -> Any:
    """Return a party B that has opened a job with A and may misuse it."""
    Rows.drawn(40, (4, 3)).write(world)
    async with by_hand(world, JOB, (4, 4)) as b:
        await b.open()
        yield b


async def sent(b: ByHand, data: bytes, owner: str = "party_b", total: int | None = None) -> bytes:
    """Have A blind whatever these bytes are; return what came back."""
    count = len(data) // 32 if total is None else total
    message = align_pb2.BlindedIds(turn=turn_of(JOB), owner=owner, points=data, total=count)
    parts = [chunk.points async for chunk in b.a.BlindIds(iter([message]), timeout=CALL_S)]
    return b"".join(parts)


def encoded(x: int) -> bytes:
    return x.to_bytes(32, "little")


def on_twist() -> int:
    return next(x for x in range(2, 99) if pow(x**3 + 486662 * x**2 + x, (P - 1) // 2, P) != 1)


BAD = {
    "zero": (encoded(0), "not a point of the curve"),
    "order 4": (encoded(1), "low order"),
    "order 8": (
        encoded(ORDER_8),
        "low order",
    ),
    "twist, order 4": (encoded(P - 1), "not a point of the curve"),
    "twist": (encoded(on_twist()), "not a point of the curve"),
    "not reduced": (encoded(P + 9), "not a reduced coordinate"),
    "all ones": (b"\xff" * 32, "not a reduced coordinate"),
    "twice": (hash_to_curve("x") * 2, "comes twice"),
    "half a point": (hash_to_curve("x") + b"\x00" * 16, "32 bytes each"),
}


@pytest.mark.parametrize(("data", "said"), BAD.values(), ids=BAD.keys())
async def test_points_that_no_honest_party_sends_are_refused(b: ByHand, data: bytes, said: str) -> None:
    with pytest.raises(PeerRefused, match=said):
        await sent(b, hash_to_curve("honest") + data)
    await b.align()  # The service and the job go on.


async def test_a_is_no_oracle_that_blinds_guessed_ids(b: ByHand) -> None:
    """With one set for each owner, B cannot come back for more once it has seen A's set."""
    await sent(b, hash_to_curve("mine"))
    with pytest.raises(PeerRefused, match="a second set of party_b's ids"):
        await sent(b, hash_to_curve("guessed"))
    for owner in ("party_a", "coordinator", "party_a2", ""):
        with pytest.raises(PeerRefused, match="does not align its ids"):
            await sent(b, hash_to_curve("guessed"), owner)


async def test_of_several_sets_of_one_owner_at_the_same_moment_one_is_blinded(b: ByHand) -> None:
    guesses = [multiply([hash_to_curve(f"{at}-{one}") for one in range(500)], KEY) for at in range(4)]
    answers = await asyncio.gather(*(sent(b, guess) for guess in guesses), return_exceptions=True)
    assert sum(isinstance(answer, bytes) for answer in answers) == 1
    assert sum(isinstance(answer, PeerRefused) for answer in answers) == 3


@pytest.mark.parametrize(
    ("total", "said"), [(0, "another number came"), (5, "another number came"), (2**40, "are the most")]
)
async def test_a_set_has_the_size_that_was_announced(b: ByHand, total: int, said: str) -> None:
    with pytest.raises(PeerRefused, match=said):
        await sent(b, multiply([hash_to_curve("x")], KEY), total=total)


async def test_ids_are_not_described_before_an_alignment_has_begun(b: ByHand) -> None:
    with pytest.raises(PeerRefused, match="only after they were aligned"):
        await b.a.DescribeIds(align_pb2.DescribeIdsRequest(turn=turn_of(JOB)), timeout=CALL_S)


@pytest.mark.parametrize(("known", "described"), [(40, 0), (39, 0), (21, 0), (20, 20)])
async def test_b_cannot_choose_its_ids_so_that_single_ids_of_a_are_described(
    b: ByHand, known: int, described: int
) -> None:
    """Of A's 40 ids so many are left, and of fewer than 20 it says nothing."""
    await b.align(known)
    reply = await b.a.DescribeIds(align_pb2.DescribeIdsRequest(turn=turn_of(JOB)), timeout=CALL_S)
    assert reply.count == described
    if not described:
        assert reply == align_pb2.IdProfile(turn=turn_of(JOB))


def test_two_jobs_on_the_same_ids_show_unrelated_points(two: Aligned, tmp_path: Path) -> None:
    again = run(tmp_path)
    seen = set().union(*two.sets("party_b", "received"))
    assert not seen & set().union(*again.sets("party_b", "received"))
