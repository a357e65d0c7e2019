"""The ledger's counts come from the schema: how many numbers a message holds, about how many rows."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from common.rpc.content import Amount, amount_in, parts_of
from common.rpc.disclosure import disclosure_of
from common.rpc.pb import (
    align_pb2,
    he_gram_pb2,
    he_linear_pb2,
    job_pb2,
    splitnn_pb2,
    vfb2_pb2,
)
from common.rpc.pb.disclosure_pb2 import Disclosure
from tests.rpc.schema import our_files

WITHOUT_NUMBERS = (Disclosure.CONTROL, Disclosure.METADATA, Disclosure.PUBLIC_KEY, Disclosure.REPORT)
# One says that a step size was no good, and no number; the other comes from a party's own operator.
NO_NUMBER = {"Derailed", "ScoreIdsRequest"}
# They are the declaration, and no messages of any service.
DECLARATION = ("vfl.v1.Disclosure", "vfl.v1.Content")


def test_every_message_that_holds_numbers_from_data_says_in_which_fields() -> None:
    lacking = [
        message.name
        for file in our_files()
        for message in file.message_types_by_name.values()
        if message.full_name not in DECLARATION
        and disclosure_of(message).kind not in WITHOUT_NUMBERS
        and not parts_of(message)
    ]
    assert set(lacking) == NO_NUMBER


def words(*held: vfb2_pb2.DominatorWord) -> vfb2_pb2.FromDominator:
    return vfb2_pb2.FromDominator(words=held)


UPDATE = vfb2_pb2.ThetaUpdate(rows=bytes(4 * 3), thetas=bytes(8 * 3))
ASKED = vfb2_pb2.ScoreRequest(rows=bytes(4 * 5))


@pytest.mark.parametrize(
    ("message", "amount"),
    [
        (he_linear_pb2.EncryptedScores(ciphertexts=bytes(7 * 64), loss_share=bytes(64)), Amount(7, 8)),
        (he_linear_pb2.EncryptedResiduals(), Amount()),
        (he_linear_pb2.DecryptedGradient(residues=bytes(4 * 32)), Amount(0, 4)),
        (he_linear_pb2.PartialScores(scores=[0.0, 1.0, 2.0]), Amount(3, 3)),
        (he_linear_pb2.PublicKey(modulus=bytes(256)), Amount(0, 0, 256)),
        (align_pb2.BlindedIds(points=bytes(32 * 9), total=100), Amount(9, 9)),
        (align_pb2.CommonPositions(positions=[4, 5]), Amount(2, 0)),
        (he_gram_pb2.PackedRows(ciphertexts=bytes(6 * 64), rows=2), Amount(2, 6)),
        (splitnn_pb2.EpochTurn(gradient=bytes(2 * 3 * 4), rows=2, width=3), Amount(2, 6)),
        (splitnn_pb2.Representations(values=bytes(2 * 3 * 2), rows=2, width=3), Amount(2, 6)),
        (words(vfb2_pb2.DominatorWord(update=UPDATE)), Amount(3, 3)),
        (words(vfb2_pb2.DominatorWord(request=ASKED), vfb2_pb2.DominatorWord(update=UPDATE)), Amount(8, 3)),
        (vfb2_pb2.ScoreRequest(begin=10, count=40), Amount(40, 0)),
        (job_pb2.Attendance(), Amount()),
    ],
)
def test_numbers_and_rows_are_counted(message: Message, amount: Amount) -> None:
    assert amount_in(message, modulus_bytes=32) == amount


def test_ciphertexts_under_a_key_that_was_never_seen_are_not_guessed_at() -> None:
    assert amount_in(he_linear_pb2.EncryptedScores(ciphertexts=bytes(512)), 0) == Amount()
