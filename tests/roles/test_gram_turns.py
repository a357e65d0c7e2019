"""Wrong turns in Gram rounds and conjugate gradients: each is a typed error that says where one stands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.crypto.cipher import CipherVector
from common.errors import LocalProtocolError, NumericError, Refused, RemoteProtocolError
from common.glm.conjugate import ConjugateScalars
from common.rpc.pb import he_linear_pb2 as he
from common.rpc.pb import job_pb2 as pb
from coordinator.he_gram import GramKeyHolder, PackedLengths
from party_a.solver_turns import SolverTurns
from tests.roles.gram_loop import GramLoop, agreement_of, drawn, gram_roles

SETTING = drawn(120, (3, 2))


@pytest.fixture
def loop():
    return GramLoop(SETTING, GramKeyHolder(agreement_of(SETTING)), None)


@pytest.fixture
def roles(loop):
    return gram_roles(SETTING, loop)


@pytest.fixture
def shared(loop, roles):
    loop.share(roles)
    return roles


def test_no_round_begins_before_all_products_are_shared(roles):
    with pytest.raises(RemoteProtocolError, match="no cross products are shared with party_b"):
        roles["party_a"].encrypt_direction(1)


def test_rows_that_are_missing_torn_or_too_many_are_refused(loop, roles):
    a, b = roles["party_a"], roles["party_b"]
    a.sharing.begin_masking("party_b")
    packed = b.sharing.encrypt_rows(slice(0, 50)).opened()
    a.sharing.absorb_rows("party_b", packed)
    with pytest.raises(RemoteProtocolError, match="50 packed rows came where 120 were agreed"):
        a.masked_products("party_b")
    a.sharing.begin_masking("party_b")
    everything = b.sharing.encrypt_rows(slice(0, 120)).opened()
    a.sharing.absorb_rows("party_b", everything)
    with pytest.raises(RemoteProtocolError, match="came for 120 rows"):
        a.sharing.absorb_rows("party_b", packed)


def test_a_set_up_that_was_broken_off_can_be_begun_again(loop, roles):
    a, b = roles["party_a"], roles["party_b"]
    a.sharing.begin_masking("party_b")
    a.sharing.absorb_rows("party_b", b.sharing.encrypt_rows(slice(0, 50)).opened())
    loop.share(roles)
    assert a.unshared == []


def test_products_of_another_length_are_refused(roles):
    b = roles["party_b"]
    length = b.sharing.products_length("party_a")
    vector = b.sharing.encrypt_rows(slice(0, length)).opened()[: length - 1]
    with pytest.raises(RemoteProtocolError, match=f"came where {length} were agreed"):
        b.sharing.blind_products("party_a", vector)


def test_a_round_out_of_turn_is_refused(shared):
    with pytest.raises(RemoteProtocolError, match="round 2 cannot begin: the last one applied is 0"):
        shared["party_a"].encrypt_direction(2)
    with pytest.raises(LocalProtocolError, match="round 3 cannot begin"):
        shared["party_b"].encrypt_direction(3)
    with pytest.raises(RemoteProtocolError, match="no round is open"):
        shared["party_a"].masked_product()
    shared["party_a"].encrypt_direction(1)
    with pytest.raises(RemoteProtocolError, match="direction of party_b has not come"):
        shared["party_a"].masked_product()


def test_a_direction_of_a_stranger_or_of_another_length_is_refused(shared):
    a, b = shared["party_a"], shared["party_b"]
    a.encrypt_direction(1)
    sent = b.encrypt_direction(1)
    block, complement = sent.block.opened(), sent.complements["party_a"].opened()
    with pytest.raises(RemoteProtocolError, match="no cross products are shared with stranger"):
        a.absorb_direction("stranger", block, complement)
    with pytest.raises(RemoteProtocolError, match="sent a direction of 3 and"):
        a.absorb_direction("party_b", block[:3], complement)
    with pytest.raises(RemoteProtocolError, match="sent a direction of"):
        a.absorb_direction("party_b", block, CipherVector(block.key, b""))


def test_a_result_under_the_wrong_key_or_of_the_wrong_length_is_noticed(loop, shared):
    a, b = shared["party_a"], shared["party_b"]
    a.encrypt_direction(1)
    sent = b.encrypt_direction(1)
    a.absorb_direction("party_b", sent.block.opened(), sent.complements["party_a"].opened())
    a.masked_product()
    with pytest.raises(RemoteProtocolError, match="returned 0 values"):
        a.apply([])
    with pytest.raises(NumericError, match="does not fit its slots"):
        a.apply([loop.holder.key.public.modulus // 2] * a.round_length)


def test_a_round_that_was_broken_off_is_begun_again(loop, shared):
    shared["party_a"].encrypt_direction(1)
    loop.round(1, shared)
    assert shared["party_a"].applied == shared["party_b"].applied == 1


def test_weights_that_run_away_stop_with_advice(loop, shared):
    shared["party_a"].solver.weights = np.full(3, 1e30)
    with pytest.raises(NumericError, match="training diverges"):
        shared["party_a"].encrypt_direction(1)


def test_the_key_holder_wants_the_lengths_first_and_within_the_columns(loop):
    with pytest.raises(RemoteProtocolError):
        loop.holder.declare("party_a", PackedLengths(4, {}))
    loop.holder.declare("party_a", PackedLengths(1, {}))
    with pytest.raises(RemoteProtocolError, match="other lengths"):
        loop.holder.declare("party_a", PackedLengths(2, {}))
    with pytest.raises(Refused, match="length 0"):
        loop.holder.decrypt_gradient("party_b", 1, loop.cipher.encrypt([1]).opened())


def turn(number: int) -> pb.Turn:
    return pb.Turn(job_id="j", round=number)


def test_steps_and_turns_of_conjugate_gradients_keep_their_order():
    solver = replace(SETTING, solver="cg").solver_of("party_a")
    turns = SolverTurns(solver)
    turns.begin(1, 0.0, 1.0)
    solver.receive(np.ones(3), 120)
    first = turns.take_step(he.StepRequest(turn=turn(1), step=0.0))
    assert turns.take_step(he.StepRequest(turn=turn(1), step=0.0)) == first
    with pytest.raises(RemoteProtocolError, match="after the round's step had been taken"):
        turns.take_step(he.StepRequest(turn=turn(1), step=0.5))
    with pytest.raises(RemoteProtocolError, match="round 3 of conjugate gradients"):
        turns.begin(3, 0.1, 1.0)
    for mixing, scale in ((float("nan"), 1.0), (-1.0, 1.0), (0.1, 0.0), (0.1, float("inf"))):
        with pytest.raises(RemoteProtocolError, match="not finite, or have the wrong sign"):
            turns.begin(2, mixing, scale)
    turns.begin(2, 0.1, 1.0)
    before = solver.point().block
    turns.begin(2, 0.1, 1.0)
    assert (solver.point().block == before).all()
    with pytest.raises(RemoteProtocolError, match="round 3 of conjugate gradients was asked for"):
        turns.begin(3, 0.1, 1.0)


def test_gradient_descent_takes_no_steps_between_rounds():
    turns = SolverTurns(SETTING.solver_of("party_a"))
    turns.begin(7, 0.0, 0.0)
    assert turns.curvature() is None
    with pytest.raises(RemoteProtocolError, match="does not use conjugate gradients"):
        turns.take_step(he.StepRequest(turn=turn(1), step=0.1))


def test_a_direction_without_curvature_stops_with_advice():
    scalars = ConjugateScalars(None, 1.0, 0.0)
    scalars.step(0.0)
    scalars.turn(4.0)
    with pytest.raises(NumericError, match="too ill-conditioned") as caught:
        scalars.step(-1e-9)
    assert "precision_bits" in caught.value.advice
    with pytest.raises(NumericError, match="no longer finite"):
        scalars.turn(float("nan"))
