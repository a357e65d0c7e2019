"""The planner: exact at its boundary, plain in what it says, and right about the errors it promises."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from common.crypto import plan as planning
from common.crypto.fixed_point import FixedPoint
from common.crypto.plan import FEATURE_LIMIT, SCORE_LIMIT, Plan, PlanRequest, prove_ranges
from common.errors import NumericError

REFERENCE = PlanRequest(2048, 32, 309, 6, FEATURE_LIMIT, SCORE_LIMIT)


def fits(request: PlanRequest) -> bool:
    try:
        prove_ranges(request)
    except NumericError:
        return False
    return True


@pytest.mark.parametrize("scale_bits", [32, 50])
@pytest.mark.parametrize("rows", [50, 309, 10**6, 10**9])
def test_any_sane_job_fits_a_2048_bit_key(scale_bits: int, rows: int) -> None:
    plan = prove_ranges(replace(REFERENCE, rows=rows, scale_bits=scale_bits))
    assert plan.headroom_bits > 1500


@pytest.mark.parametrize("parties", [2, 3, 7])
@pytest.mark.parametrize("scale_bits", [16, 32, 50])
def test_the_shortest_key_that_fits_is_found_to_the_bit(scale_bits: int, parties: int) -> None:
    request = replace(REFERENCE, scale_bits=scale_bits, parties=parties)
    lengths = [bits for bits in range(64, 400) if fits(replace(request, key_bits=bits))]
    assert lengths == list(range(lengths[0], 400))
    assert prove_ranges(replace(request, key_bits=lengths[0])).headroom_bits == 0
    assert prove_ranges(replace(request, key_bits=lengths[0] + 9)).headroom_bits == 9


def test_the_last_row_before_the_boundary_is_accepted_and_the_next_one_refused() -> None:
    # With a feature limit above the score limit the gradient is what fills the key.
    request = PlanRequest(128, 16, 1, 3, feature_limit=2.0**30, score_limit=2.0**10)
    gradient_of_a_row = 2**46 * (2 * 2**26)
    most = (2**127 - 1) // (3 * gradient_of_a_row)
    assert fits(replace(request, rows=most))
    assert not fits(replace(request, rows=most + 1))


def test_a_loss_that_does_not_fit_is_refused_even_if_the_gradient_would() -> None:
    small_features = PlanRequest(128, 16, 100, 3, feature_limit=1.0, score_limit=2.0**45)
    assert 3 * 100 * 2**16 * 2 * 2**61 < 2**127
    assert not fits(small_features)


@pytest.mark.parametrize(
    "request_", [replace(REFERENCE, key_bits=200, scale_bits=50), replace(REFERENCE, key_bits=64)]
)
def test_the_advice_of_a_refusal_works(request_: PlanRequest) -> None:
    with pytest.raises(NumericError) as caught:
        prove_ranges(request_)
    numbers = [int(word) for word in caught.value.advice.replace(":", " ").split() if word.isdigit()]
    advised = "scale_bits" if "precision_bits to" in caught.value.advice else "key_bits"
    assert fits(replace(request_, **{advised: numbers[0]}))


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 0},
        {"columns": 0},
        {"scale_bits": 0},
        {"parties": 0},
        {"feature_limit": 0.0},
        {"feature_limit": float("nan")},
        {"score_limit": float("inf")},
        {"score_limit": -1.0},
    ],
)
def test_requests_without_meaning_are_refused(change: dict[str, float]) -> None:
    assert not fits(replace(REFERENCE, **change))  # type: ignore[arg-type]


def test_values_at_the_declared_limits_stay_below_a_third() -> None:
    rows, limit_x, limit_u = 30, 1000.3, 5000.7
    request = PlanRequest(128, 20, rows, 1, limit_x, limit_u)
    fixed_point = FixedPoint(20)
    x, u = (fixed_point.encode(np.full(rows, limit)).astype(object) for limit in (limit_x, limit_u))
    gradient = int((x * (u + u)).sum())
    plan = prove_ranges(request)
    loss = 2 * fixed_point.encode_wide(plan.loss_share_limit) + int((u * u).sum())
    assert max(gradient, loss) <= planning._largest_value(request)
    assert loss >= fixed_point.encode_wide(0.5 * rows * (2 * limit_u) ** 2)


def _errors(plan: Plan, x: np.ndarray, u: np.ndarray, z: np.ndarray) -> tuple[float, float]:
    """Return the exact errors of Σ x·(u + z) and of ½Σ(u + z)², computed as the protocol computes them."""
    scale_bits = plan.request.scale_bits
    fixed_point = FixedPoint(scale_bits)
    encoded = [[int(value) for value in fixed_point.encode(values)] for values in (x, u, z)]
    exact = [[Fraction(value) for value in values.tolist()] for values in (x, u, z)]
    unit = Fraction(1, 1 << (2 * scale_bits))
    gradient = unit * sum(a * (b + c) for a, b, c in zip(*encoded, strict=True))
    true_gradient = sum(a * (b + c) for a, b, c in zip(*exact, strict=True))
    shares = sum(fixed_point.encode_wide(float(0.5 * values @ values)) for values in (u, z))
    loss = unit * (sum(b * c for b, c in zip(*encoded[1:], strict=True)) + shares)
    true_shares = sum(Fraction(float(0.5 * values @ values)) for values in (u, z))
    true_loss = true_shares + sum(b * c for b, c in zip(*exact[1:], strict=True))
    return float(abs(gradient - true_gradient)), float(abs(loss - true_loss))


@pytest.mark.parametrize("seed", range(5))
def test_errors_stay_within_the_promise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = 200
    plan = prove_ranges(PlanRequest(512, 24, rows, 1, feature_limit=4.0, score_limit=100.0))
    x, u, z = rng.uniform(-4, 4, rows), rng.uniform(-100, 100, rows), rng.uniform(-100, 100, rows)
    gradient, loss = _errors(plan, x, u, z)
    assert gradient <= plan.gradient_error == plan.gradient_error_within(4.0, 100.0)
    assert loss <= plan.loss_error


def test_typical_errors_are_the_root_mean_square_for_values_of_size_one() -> None:
    rng = np.random.default_rng(3)
    rows, runs = 50, 400
    plan = prove_ranges(PlanRequest(512, 20, rows, 1))
    errors = []
    for _ in range(runs):
        x, u = rng.normal(size=rows), rng.normal(size=rows)
        z = rng.normal(size=rows)
        gradient, _ = _errors(plan, x, u, z - u)  # so that the residual has size 1
        _, loss = _errors(plan, x, u, z)
        errors.append((gradient, loss))
    rms = np.sqrt(np.mean(np.square(errors), axis=0))
    assert rms[0] == pytest.approx(plan.typical_gradient_error, rel=0.15)
    assert rms[1] == pytest.approx(plan.typical_loss_error, rel=0.15)


def test_the_plan_says_in_plain_words_what_precision_remains() -> None:
    text = prove_ranges(REFERENCE).describe()
    for word in (
        "2048-bit",
        "32 bits of precision",
        "309 rows",
        "nothing can overflow",
        "2.3e-10",
        "gradient",
        "loss",
    ):
        assert word in text
