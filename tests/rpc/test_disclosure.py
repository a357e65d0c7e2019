"""No message leaves without declaring what it discloses."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from common.errors import LocalProtocolError
from common.rpc.channels import open_channel
from common.rpc.disclosure import disclosure_of, rpc_messages, undeclared_messages
from common.rpc.pb import disclosure_pb2, he_linear_pb2, job_pb2
from common.rpc.pb.disclosure_pb2 import Disclosure, disclosure
from common.rpc.tls import Security
from common.rpc.wiretap import Wiretap
from tests.rpc.schema import our_files

STRING, MESSAGE = (
    descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
)


def message_type(*, outer: Disclosure | None, inner: Disclosure | None) -> Any:
    """Build a service whose request holds another message, with the declarations given."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"vfl/tests/{outer!r}-{inner!r}.proto", package="vfl.tests", syntax="proto3"
    )
    file.dependency.append("vfl/v1/disclosure.proto")
    holder, held = file.message_type.add(name="Holder"), file.message_type.add(name="Held")
    held.field.add(name="text", number=1, type=STRING, label=1)
    holder.field.add(name="held", number=1, type=MESSAGE, label=3, type_name=".vfl.tests.Held")
    for declared, message in ((outer, holder), (inner, held)):
        if declared is not None:
            message.options.Extensions[disclosure].CopyFrom(declared)
    service = file.service.add(name="Probe")
    service.method.add(name="Ask", input_type=".vfl.tests.Holder", output_type=".vfl.tests.Held")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(disclosure_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return pool.FindFileByName(file.name)


COMPLETE = Disclosure(
    kind=Disclosure.CONTROL,
    granularity=Disclosure.NO_DATA,
    protection=Disclosure.PLAINTEXT,
    summary="a probe",
)
CIPHERTEXT_OF_NOBODY = Disclosure(
    kind=Disclosure.LOSS,
    granularity=Disclosure.AGGREGATE,
    protection=Disclosure.CIPHERTEXT,
    summary="a loss",
)


def test_every_message_of_every_service_declares_what_it_discloses() -> None:
    messages = list(rpc_messages(our_files()))
    assert {message.name for message in messages} >= {"OpenJobRequest", "EncryptedScores", "JobEvent"}
    assert [name for message in messages for name in undeclared_messages(message)] == []


def test_every_message_in_the_files_declares_what_it_discloses() -> None:
    """Also those that travel otherwise than as a request or a response, such as ErrorDetail."""
    # They are the declaration, and no messages of any service.
    lacking = {
        name
        for file in our_files()
        for message in file.message_types_by_name.values()
        for name in undeclared_messages(message)
    }
    assert lacking == {"vfl.v1.Disclosure", "vfl.v1.Content"}


def test_what_is_per_row_in_the_clear_is_known_by_name() -> None:
    """A new message of this kind is a decision about privacy, not a detail: it has to be added here."""
    allowed = {"PartialScores", "ArtifactChunk", "CommonPositions", "CommonRows", "ScoreRowsRequest"}
    # Split networks: representations one way, gradients that tell labels the other way.
    allowed |= {"Representations", "EpochTurn"}
    # VFB²: θ and row numbers; it is for parties that may know the labels, and says so.
    allowed |= {"FromDominator"}
    # Between a party and its own operator.
    allowed |= {"ScoreIdsRequest", "ScoreIdsReply"}
    found = {
        message.name
        for message in rpc_messages(our_files())
        if disclosure_of(message).granularity == Disclosure.PER_ROW
        and disclosure_of(message).protection == Disclosure.PLAINTEXT
    }
    assert found == allowed


@pytest.mark.parametrize(
    ("outer", "inner", "lacking"),
    [
        (COMPLETE, COMPLETE, []),
        (None, COMPLETE, ["vfl.tests.Holder"]),
        (COMPLETE, None, ["vfl.tests.Held"]),
        (None, None, ["vfl.tests.Held", "vfl.tests.Holder"]),
        (COMPLETE, Disclosure(kind=Disclosure.CONTROL), ["vfl.tests.Held"]),
        (COMPLETE, CIPHERTEXT_OF_NOBODY, ["vfl.tests.Held"]),
    ],
)
def test_the_check_finds_messages_that_declare_nothing_or_too_little(
    outer: Disclosure | None, inner: Disclosure | None, lacking: list[str]
) -> None:
    file = message_type(outer=outer, inner=inner)
    found = {name for message in rpc_messages([file]) for name in undeclared_messages(message)}
    assert sorted(found) == lacking


@pytest.mark.parametrize(("outer", "inner"), [(None, COMPLETE), (COMPLETE, None)])
def test_a_message_without_declaration_is_not_serialised(
    outer: Disclosure | None, inner: Disclosure | None
) -> None:
    file = message_type(outer=outer, inner=inner)
    message = message_factory.GetMessageClass(file.message_types_by_name["Holder"])()
    passages: list[object] = []
    with pytest.raises(LocalProtocolError, match="declare"):
        Wiretap([passages.append]).encode(message, "party_a")
    assert passages == []


async def test_a_message_without_declaration_does_not_reach_the_channel() -> None:
    file = message_type(outer=None, inner=COMPLETE)
    message = message_factory.GetMessageClass(file.message_types_by_name["Holder"])()
    async with open_channel("party_a", "127.0.0.1:1", "party_b", Security(None), Wiretap()) as channel:
        ask = channel.unary_unary(
            "/vfl.tests.Probe/Ask", type(message).SerializeToString, type(message).FromString
        )
        with pytest.raises(LocalProtocolError, match="declare"):
            ask(message, timeout=1)


def test_ciphertexts_name_the_key_holder() -> None:
    assert disclosure_of(he_linear_pb2.EncryptedScores.DESCRIPTOR).key_holder == Disclosure.COORDINATOR
    assert disclosure_of(job_pb2.Turn.DESCRIPTOR).key_holder == Disclosure.KEY_HOLDER_NONE
