"""Randomness: uniform, reproducible where asked for, independent between workers."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from common.crypto.entropy import SeededEntropy, SystemEntropy, uniform_below, uniform_masks
from common.errors import LocalProtocolError

# The 99.99 % quantile of chi-square with 15 degrees of freedom; the streams are seeded, so this cannot flake.
CHI_SQUARE_15 = 44.3


def chi_square(counts: Counter[int], cells: int) -> float:
    expected = counts.total() / cells
    return sum((counts[cell] - expected) ** 2 / expected for cell in range(cells))


def test_a_seed_gives_the_same_stream_again() -> None:
    first, second = SeededEntropy(b"seed"), SeededEntropy(b"seed")
    assert [first.bits(300) for _ in range(5)] == [second.bits(300) for _ in range(5)]
    assert SeededEntropy(b"other").bits(300) != SeededEntropy(b"seed").bits(300)


@pytest.mark.parametrize("count", [0, 1, 7, 256, 257, 1080])
def test_bits_stay_within_their_count(count: int) -> None:
    entropy = SeededEntropy(b"count")
    assert all(0 <= entropy.bits(count) < 1 << count for _ in range(50))
    assert 0 <= SystemEntropy().bits(count) < 1 << count


def test_workers_get_streams_of_their_own() -> None:
    entropy = SeededEntropy(b"parent")
    children = [entropy.split() for _ in range(4)]
    assert len({child.bits(128) for child in [*children, entropy]}) == 5


def test_system_entropy_travels_to_a_worker_and_does_not_repeat() -> None:
    entropy = SystemEntropy()
    copy = pickle.loads(pickle.dumps(entropy))  # noqa: S301 our own bytes
    assert len({source.bits(128) for source in (entropy, copy, entropy.split(), entropy.split())}) == 4


def test_an_integer_below_a_bound_is_uniform_and_not_biased_by_reduction() -> None:
    # 2^4 reduced modulo 11 would hit 0 … 4 twice as often.
    entropy = SeededEntropy(b"bound")
    counts = Counter(uniform_below(entropy, 11) for _ in range(11_000))
    assert set(counts) == set(range(11))
    assert chi_square(counts, 11) < CHI_SQUARE_15


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        uniform_below(SeededEntropy(b""), 0)


def test_masks_cover_the_whole_ring_evenly() -> None:
    modulus = (1 << 200) - 237
    masks = uniform_masks(SeededEntropy(b"masks"), 16_000, modulus)
    assert len(set(masks)) == len(masks)
    assert chi_square(Counter(16 * mask // modulus for mask in masks), 16) < CHI_SQUARE_15
    assert chi_square(Counter(mask % 16 for mask in masks), 16) < CHI_SQUARE_15


def test_a_masked_value_is_as_uniform_as_the_mask_whatever_the_value() -> None:
    modulus = 77
    for value in (0, 1, 76):
        masks = uniform_masks(SeededEntropy(b"v"), 7_700, modulus)
        counts = Counter((value + mask) % modulus // 5 for mask in masks if (value + mask) % modulus < 75)
        assert chi_square(counts, 15) < CHI_SQUARE_15
