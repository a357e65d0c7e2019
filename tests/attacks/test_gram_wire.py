"""Gram rounds on the wire: division attacks at every message, uniform residues at C, equal sizes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor

from common.crypto.fixed_point import FixedPoint
from common.crypto.gram_setup import ScaledColumns
from common.rpc.disclosure import disclosure_of
from common.rpc.pb import he_gram_pb2 as messages
from common.rpc.pb.active_party_pb2 import JOB_FINISHED
from common.rpc.pb.disclosure_pb2 import Disclosure
from tests.attacks.captured import GRAM_FIELDS, Captured, divided, noise_of, product_noise
from tests.attacks.test_masks_are_uniform import assert_uniform
from tests.attacks.world import Rows, World, job_of

SCALE = FixedPoint(32)
JOBS = ("gram", "gram_two_passive")


@pytest.fixture(params=JOBS)
def job(request: pytest.FixtureRequest) -> Captured:
    """Return each captured job."""
    captured: Captured = request.getfixturevalue(request.param)
    return captured


def sent(job: Captured, party: str, name: str, peer: str = "") -> list[int]:
    """Return the ciphertexts of one kind that a party sent, in order."""
    return [
        ciphertext
        for message in job.messages(party, "sent", name, peer)
        for field in GRAM_FIELDS[name]
        for ciphertext in job.cut(getattr(message, field))
    ]


def made_by(job: Captured, party: str) -> list[int]:
    """Return every ciphertext that a party made: what B carries between passive parties is theirs."""
    authors = {"PackedRows": "holder", "MaskedProducts": "masker", "Direction": "sender"}
    return [
        ciphertext
        for name, fields in GRAM_FIELDS.items()
        for message in job.messages(party, "sent", name)
        if name not in authors or getattr(message, authors[name]) == party
        for field in fields
        for ciphertext in job.cut(getattr(message, field))
    ]


def made_by_parties(job: Captured) -> list[int]:
    """Return every ciphertext that any party made."""
    return [one for party in job.wire for one in made_by(job, party)]


def test_nothing_leaves_with_noise_1(job: Captured) -> None:
    assert all(noise_of(ciphertext, job.key.modulus) != 1 for ciphertext in made_by_parties(job))


def test_every_ciphertext_is_under_its_own_noise(job: Captured) -> None:
    """Except for what goes to two receivers as it is: a block, and the active party's packed rows."""
    found = set(made_by_parties(job))
    assert len({noise_of(ciphertext, job.key.modulus) for ciphertext in found}) == len(found)


def test_b_cannot_divide_its_rows_out_of_the_masked_products(gram: Captured) -> None:
    """If A had only added its mask, a right guess of one of its columns would confirm itself."""
    modulus, columns = gram.key.modulus, ScaledColumns.of(gram.rows.passive).encoded(slice(None), SCALE)
    rows = sent(gram, "party_b", "PackedRows")
    products = sent(gram, "party_a", "MaskedProducts")
    groups = len(rows) // 40
    assert len(products) == groups * columns.shape[1]
    noises = [
        product_noise(rows[group * 40 : (group + 1) * 40], column, modulus)
        for group in range(groups)
        for column in columns.T.tolist()
    ]
    assert all(noise_of(one, modulus) != noise for one, noise in zip(products, noises, strict=True))
    assert not {noise_of(one, modulus) for one in products} & set(noises)


def test_c_s_side_of_the_products_is_not_what_a_sent(job: Captured) -> None:
    """A cannot recognise, and whoever reads A's link cannot link, what B has decrypted."""
    modulus = job.key.modulus
    blinded = {noise_of(one, modulus) for party in job.wire for one in sent(job, party, "BlindedProducts")}
    masked = {noise_of(one, modulus) for party in job.wire for one in sent(job, party, "MaskedProducts")}
    assert blinded
    assert not blinded & masked


def test_nobody_divides_its_own_ciphertext_out_of_what_comes_back(job: Captured) -> None:
    modulus = job.key.modulus
    for party in job.wire:
        made = {noise_of(one, modulus) for one in made_by(job, party)}
        for name in ("Direction", "MaskedProducts", "PackedRows"):
            for message in job.messages(party, "received", name):
                for field in GRAM_FIELDS[name]:
                    # The quotient of two ciphertexts is 1 + m·N exactly if their noise is the same.
                    assert not made & {noise_of(one, modulus) for one in job.cut(getattr(message, field))}


def test_the_loss_cannot_be_divided_by_a_s_share(gram: Captured) -> None:
    shares = [message.loss_share for message in gram.messages("party_a", "sent", "DirectionsApplied")]
    losses = sent(gram, "party_b", "EncryptedLoss")
    assert len(shares) == len(losses) == gram.rounds
    for share, loss in zip(shares, losses, strict=True):
        assert divided(loss, gram.cut(share)[0], gram.key.modulus) is None


@pytest.mark.parametrize("party", ["party_a", "party_b"])
def test_what_c_decrypts_in_the_rounds_is_uniform(gram: Captured, party: str) -> None:
    residues = [residue for row in gram.residues(party) for residue in row]
    assert_uniform(residues, gram.key.modulus)


def test_what_c_decrypts_in_the_set_up_is_uniform_and_never_the_same(tmp_path: Path) -> None:
    """Many columns, one round: the cross products alone give C some hundred residues."""
    rows = Rows.drawn(90, (14, 12))
    world = World(tmp_path)
    rows.write(world)
    config = job_of(train={"max_rounds": 1}, crypto={"rounds": "gram"})

    async def run() -> None:
        async with world.running("coordinator", "party_a", "party_b"):
            for _ in range(4):
                assert (await world.train(config)).status == JOB_FINISHED

    asyncio.run(run())
    captured = Captured(world.wire, rows, 1)
    width = captured.key.residue_bytes
    residues = [
        int.from_bytes(message.residues[at : at + width], "big")
        for message in captured.messages("coordinator", "sent", "DecryptedProducts")
        for at in range(0, len(message.residues), width)
    ]
    assert len(set(residues)) == len(residues) >= 300
    # Each job has its own key of the same length; the top bits are compared with the smallest possible N.
    low = [residue % (1 << 240) for residue in residues]
    assert_uniform(low, 1 << 240)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_unit_of_the_data_shows_in_no_size_and_no_count(
    gram: Captured, tmp_path: Path, factor: float
) -> None:
    rows = Rows.drawn(40, (4, 3)).times(factor)
    world = World(tmp_path)
    rows.write(world)
    config = job_of(
        train={"max_rounds": 2, "learning_rate": 1e-3 / max(1.0, factor) ** 2}, crypto={"rounds": "gram"}
    )

    async def run() -> None:
        async with world.running("coordinator", "party_a", "party_b"):
            assert (await world.train(config)).status == JOB_FINISHED

    asyncio.run(run())
    other = Captured(world.wire, rows, 2)
    for name in GRAM_FIELDS:
        for party in ("party_a", "party_b"):
            here, there = sizes(gram, party, name), sizes(other, party, name)
            assert here == there


def sizes(job: Captured, party: str, name: str) -> set[tuple[int, ...]]:
    """Return the sizes of a message's fields, each a number of whole ciphertexts."""
    width, found = job.key.ciphertext_bytes, set()
    for message in job.messages(party, "sent", name):
        lengths = tuple(len(getattr(message, field)) for field in GRAM_FIELDS[name])
        assert all(length % width == 0 for length in lengths)
        found.add(lengths)
    return found


def test_no_round_s_result_looks_like_the_true_one_to_c(gram: Captured) -> None:
    """Read in slots, residues are nowhere near numbers at the job's scale."""
    for party in ("party_a", "party_b"):
        for row in gram.residues(party):
            for residue in row:
                signed = min(residue, residue - gram.key.modulus, key=abs)
                assert np.abs(float(signed)) > 2.0**200


def test_ciphertexts_travel_with_nothing_but_their_turn_and_names() -> None:
    """No exponent and no scale beside them; only the solver's scalar, which declares itself, and how many
    rows of the agreed ones a piece holds, as its length says anyway.
    """
    secret = [
        message
        for message in messages.DESCRIPTOR.message_types_by_name.values()
        if disclosure_of(message).protection in (Disclosure.CIPHERTEXT, Disclosure.MASKED)
    ]
    assert len(secret) == 6
    for message in secret:
        for field in message.fields:
            plain = field.type in (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)
            assert plain or field.name in ("turn", "curvature", "rows"), field.full_name
