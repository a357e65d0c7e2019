"""Halves of a network train as the whole one does, and go on from their bytes as if nothing had happened."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.errors import DataError, LocalProtocolError, NumericError
from common.nets.batches import epoch_batches, epoch_order
from common.nets.pooled import Half, PooledNetwork, train_pooled
from common.nets.shape import NetSettings, NetShape, Optimisation
from common.nets.split import ActiveNetwork, PassiveNetwork
from common.types import Ints
from tests.nets.nets_cases import TwoParties, two_parties

SHAPE = NetShape(bottom=(16, 8), top=(8,))
COSINE = Optimisation(learning_rate=0.01, schedule="cosine", horizon=40)


def halves(data: TwoParties, optimisation: Optimisation = COSINE) -> tuple[PassiveNetwork, ActiveNetwork]:
    passive = PassiveNetwork(data.a, data.layout_a, NetSettings(SHAPE, optimisation, 1))
    settings = NetSettings(SHAPE, optimisation, 2)
    return passive, ActiveNetwork(data.b, data.labels, data.layout_b, settings, ("a",))


def train_halves(passive: PassiveNetwork, active: ActiveNetwork, batches: list[Ints]) -> list[float]:
    losses = []
    for rows in batches:
        step = active.step(rows, {"a": passive.forward(rows)})
        passive.backward(rows, step.gradients["a"])
        losses.append(step.loss)
    return losses


def batches_of(data: TwoParties, epoch: int = 0) -> list[Ints]:
    return list(epoch_batches(len(data.b), 64, 7, epoch))


def test_an_epoch_over_halves_equals_an_epoch_of_the_whole_network() -> None:
    data = two_parties()
    passive, active = halves(data)
    whole = PooledNetwork(
        Half(data.b, data.layout_b, NetSettings(SHAPE, COSINE, 2)),
        {"a": Half(data.a, data.layout_a, NetSettings(SHAPE, COSINE, 1))},
        data.labels,
    )
    batches = batches_of(data)
    np.testing.assert_allclose(
        train_halves(passive, active, batches), train_pooled(whole, batches), atol=1e-5
    )
    rows = np.arange(len(data.b))
    scores = active.logits(rows, {"a": passive.represent(rows)})
    np.testing.assert_allclose(scores, whole.logits(rows), atol=1e-5)
    assert np.std(scores) > 0.01


def test_two_passive_parties_train_as_the_whole_network_whatever_order_they_are_named_in() -> None:
    data, other = two_parties(), two_parties(seed=6)
    settings = [NetSettings(SHAPE, COSINE, seed) for seed in range(3)]
    first = PassiveNetwork(data.a, data.layout_a, settings[1])
    second = PassiveNetwork(other.a, other.layout_a, settings[2])
    active = ActiveNetwork(data.b, data.labels, data.layout_b, settings[0], ("z", "a"))
    passive = {
        "a": Half(data.a, data.layout_a, settings[1]),
        "z": Half(other.a, other.layout_a, settings[2]),
    }
    whole = PooledNetwork(Half(data.b, data.layout_b, settings[0]), passive, data.labels)
    losses = []
    for rows in batches_of(data):
        step = active.step(rows, {"z": second.forward(rows), "a": first.forward(rows)})
        first.backward(rows, step.gradients["a"])
        second.backward(rows, step.gradients["z"])
        losses.append(step.loss)
    np.testing.assert_allclose(losses, train_pooled(whole, batches_of(data)), atol=1e-5)


def test_training_learns_what_only_both_together_know() -> None:
    data = two_parties(2000)
    passive, active = halves(data, Optimisation(learning_rate=0.01))
    losses = [np.mean(train_halves(passive, active, batches_of(data, epoch))) for epoch in range(6)]
    assert losses[-1] < losses[0] - 0.05


def test_networks_go_on_from_their_bytes_bit_for_bit() -> None:
    data = two_parties()
    passive, active = halves(data)
    train_halves(passive, active, batches_of(data))
    kept = passive.to_bytes(), active.to_bytes()
    straight = train_halves(passive, active, batches_of(data, 1))
    again = PassiveNetwork.from_bytes(kept[0], data.a), ActiveNetwork.from_bytes(kept[1], data.b, data.labels)
    assert (again[0].to_bytes(), again[1].to_bytes()) == kept
    assert train_halves(*again, batches_of(data, 1)) == straight
    assert (again[0].to_bytes(), again[1].to_bytes()) == (passive.to_bytes(), active.to_bytes())


def test_a_model_without_its_optimiser_scores_the_same() -> None:
    data = two_parties()
    passive, active = halves(data)
    train_halves(passive, active, batches_of(data))
    rows = np.arange(100)
    model = PassiveNetwork.from_bytes(passive.weights_to_bytes(), data.a.take(rows))
    top = ActiveNetwork.from_bytes(active.weights_to_bytes(), data.b.take(rows), np.full(100, np.nan))
    np.testing.assert_array_equal(model.represent(rows), passive.represent(rows))
    expected = active.logits(rows, {"a": passive.represent(rows)})
    np.testing.assert_array_equal(top.logits(rows, {"a": model.represent(rows)}), expected)
    assert len(passive.weights_to_bytes()) < len(passive.to_bytes()) / 2


def test_a_backward_pass_after_the_next_forward_pass_uses_the_weights_of_its_own() -> None:
    data = two_parties()
    rows = batches_of(data)
    plain = replace(COSINE, embedding_l2=0.0)
    early, late = halves(data, plain)[0], halves(data, plain)[0]
    gradient = np.ones((len(rows[0]), SHAPE.width), dtype=np.float32)
    early.forward(rows[0])
    early.backward(rows[0], gradient)
    late.forward(rows[0])
    late.forward(rows[1])
    late.backward(rows[0], gradient)
    everybody = np.arange(len(data.a))
    np.testing.assert_array_equal(early.represent(everybody), late.represent(everybody))
    late.backward(rows[1], np.ones((len(rows[1]), SHAPE.width), dtype=np.float32))
    assert not np.array_equal(early.represent(everybody), late.represent(everybody))


def test_a_prepared_batch_is_the_same_batch_and_no_other() -> None:
    data = two_parties()
    (passive, active), (second, ahead) = halves(data), halves(data)
    batches = batches_of(data)
    train_halves(passive, active, batches)
    for rows in batches:
        ahead.prepare(rows)
        second.backward(rows, ahead.step(rows, {"a": second.forward(rows)}).gradients["a"])
    assert ahead.to_bytes() == active.to_bytes()
    ahead.prepare(batches[0])
    with pytest.raises(LocalProtocolError):
        ahead.to_bytes()
    with pytest.raises(LocalProtocolError):
        ahead.step(batches[1], {"a": second.forward(batches[1])})


def test_gradients_out_of_turn_or_of_another_shape_are_refused() -> None:
    data = two_parties()
    passive, active = halves(data)
    first, second = batches_of(data)[:2]
    h = passive.forward(first)
    with pytest.raises(LocalProtocolError):
        passive.backward(second, h)
    with pytest.raises(LocalProtocolError):
        passive.backward(first, h[:, :3])
    with pytest.raises(LocalProtocolError):
        passive.to_bytes()
    with pytest.raises(NumericError):
        passive.backward(first, np.full_like(h, np.nan))
    with pytest.raises(LocalProtocolError):
        active.step(first, {})
    with pytest.raises(LocalProtocolError):
        active.step(first, {"a": h[:5]})
    with pytest.raises(NumericError):
        active.step(first, {"a": np.full_like(h, np.nan)})
    with pytest.raises(LocalProtocolError):
        PassiveNetwork(data.a, data.layout_b, NetSettings(SHAPE))
    with pytest.raises(LocalProtocolError):
        ActiveNetwork(data.a, data.labels, data.layout_b, NetSettings(SHAPE), ("a",))
    with pytest.raises(DataError):
        ActiveNetwork(data.b, data.labels + 1, data.layout_b, NetSettings(SHAPE), ("a",))


@pytest.mark.parametrize("damage", [b"", b"x" * 40, "cut", "kind"])
def test_broken_bytes_are_a_data_error(damage: bytes | str) -> None:
    data = two_parties()
    passive, active = halves(data)
    kept = passive.to_bytes()
    bad = kept[:-50] if damage == "cut" else active.to_bytes() if damage == "kind" else damage
    assert not isinstance(bad, str)
    with pytest.raises(DataError):
        PassiveNetwork.from_bytes(bad, data.a)


def test_a_large_table_learns_on_touched_rows_and_goes_on_bit_for_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("common.nets.learning._DENSE_ROWS", 10)
    data = two_parties()
    passive, active = halves(data)
    before = passive.represent(np.arange(50))
    train_halves(passive, active, batches_of(data))
    kept = passive.to_bytes(), active.to_bytes()
    again = PassiveNetwork.from_bytes(kept[0], data.a), ActiveNetwork.from_bytes(kept[1], data.b, data.labels)
    assert train_halves(passive, active, batches_of(data, 1)) == train_halves(*again, batches_of(data, 1))
    assert not np.allclose(before, passive.represent(np.arange(50)))


def test_schedules_begin_at_the_rate_and_end_where_they_say() -> None:
    halving = Optimisation(learning_rate=1.0, schedule="halving", horizon=100)
    assert [halving.rate(step) for step in (0, 20, 40, 60, 80, 500)] == [1, 0.5, 0.25, 0.125, 1 / 16, 1 / 16]
    cosine = replace(halving, schedule="cosine")
    assert [cosine.rate(0), cosine.rate(50)] == [1.0, pytest.approx(0.5)]
    assert cosine.rate(100) == pytest.approx(0.0)


def test_batches_hold_every_row_once_and_change_with_epoch_and_seed() -> None:
    batches = list(epoch_batches(1000, 64, 3, 1))
    assert sorted(np.concatenate(batches).tolist()) == list(range(1000))
    assert {len(one) for one in batches} <= {62, 63}
    assert not np.array_equal(epoch_order(1000, 3, 1), epoch_order(1000, 3, 2))
    assert not np.array_equal(epoch_order(1000, 3, 1), epoch_order(1000, 4, 1))
    assert epoch_order(8, 3, 1).tolist() == [4, 6, 2, 0, 1, 3, 7, 5]
