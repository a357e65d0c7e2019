"""Rule 1.2.3: nothing on the wire tells a magnitude: no exponents, no widths, no sizes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from common.rpc.disclosure import disclosure_of
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb.active_party_pb2 import JOB_FINISHED
from common.rpc.pb.disclosure_pb2 import Disclosure
from common.rpc.wiretap import Passage
from tests.attacks.captured import CIPHERTEXT_FIELDS, Captured
from tests.attacks.world import Rows, World, job_of

SECRET = (Disclosure.CIPHERTEXT, Disclosure.MASKED)
# Heartbeats come by the clock, and the operator's events and the closing replies carry times.
BY_THE_CLOCK = {"Presence", "JobEvent", "JobRecord", "CloseJobReply"}


# A number about all rows that conjugate gradients exchange in the clear; it declares itself as such.
BESIDE = {"vfl.v1.RoundApplied.curvature"}


def test_ciphertexts_and_masked_values_travel_with_nothing_but_their_turn() -> None:
    """No exponent, no scale, no length beside them, and no room for one."""
    secret = [
        message
        for message in he.DESCRIPTOR.message_types_by_name.values()
        if disclosure_of(message).protection in SECRET
    ]
    assert len(secret) == 6
    for message in secret:
        for field in message.fields:
            if field.full_name not in BESIDE:
                assert field.name == "turn" or field.type == FieldDescriptor.TYPE_BYTES, field.full_name


@pytest.mark.parametrize("job", ["full_batch", "two_passive"])
def test_every_ciphertext_on_the_wire_has_the_same_width(job: str, request: pytest.FixtureRequest) -> None:
    captured: Captured = request.getfixturevalue(job)
    width, sizes = captured.key.ciphertext_bytes, set()
    for party in captured.wire:
        for name, fields in CIPHERTEXT_FIELDS.items():
            for message in captured.messages(party, "sent", name):
                assert not UnknownFieldSet(message)
                for field in fields:
                    content = getattr(message, field)
                    assert len(content) % width == 0
                    sizes.add((name, field, len(content)))
    assert {name for name, _, _ in sizes} >= {"EncryptedScores", "EncryptedResiduals", "MaskedGradient"}
    # One size for a full chunk, and none for an absent part of the loss.
    assert all(
        len({size for n, f, size in sizes if (n, f) == key and size}) <= 2 for key in {s[:2] for s in sizes}
    )


@pytest.mark.parametrize("party", ["party_a", "party_b"])
def test_every_decrypted_value_has_the_width_of_the_modulus(full_batch: Captured, party: str) -> None:
    sizes = {
        len(message.residues)
        for message in full_batch.messages("coordinator", "sent", "DecryptedGradient", party)
    }
    assert sizes == {4 * full_batch.key.residue_bytes}
    losses = full_batch.messages("coordinator", "sent", "DecryptedLoss")
    assert {len(message.residue) for message in losses} == {full_batch.key.residue_bytes}


def test_message_sizes_are_the_same_for_values_a_billion_times_larger(tmp_path: Path) -> None:
    async def sizes(factor: float) -> dict[tuple[str, str, str], list[int]]:
        world = World(tmp_path / f"{factor:g}")
        Rows.drawn(40, (4, 3)).times(factor).write(world)
        job = job_of(train={"learning_rate": "auto", "max_rounds": 5}, data={"intercept": False})
        async with world.running("coordinator", "party_a", "party_b"):
            record = await world.train(job)
        assert record.status == JOB_FINISHED, record.error.what
        return by_link(world.wire)

    def by_link(wire: dict[str, list[Passage]]) -> dict[tuple[str, str, str], list[int]]:
        found: dict[tuple[str, str, str], list[int]] = {}
        for party, passages in wire.items():
            for passage in passages:
                name = passage.message_type.rpartition(".")[2]
                if passage.direction == "sent" and name not in BY_THE_CLOCK:
                    found.setdefault((party, passage.peer, name), []).append(len(passage.wire))
        # Streams that run side by side interleave as they like.
        return {link: sorted(lengths) for link, lengths in found.items()}

    small, large = (asyncio.run(sizes(factor)) for factor in (1e-4, 1e5))
    assert ("party_a", "coordinator", "MaskedGradient") in small
    assert small == large
