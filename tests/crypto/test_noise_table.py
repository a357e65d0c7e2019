"""Noise from the table is what the formula says, fresh each time, and never without effect."""

from __future__ import annotations

import pytest

from common.crypto.entropy import SeededEntropy
from common.crypto.noise import TEETH, NoiseTable
from common.crypto.paillier import PublicKey, noise_bits
from common.crypto.private_key import PrivateKey


def _exponent(digits: int, teeth: int, blocks: int, exponent_bits: int) -> int:
    """Rebuild r from the pieces of the module's docstring, one bit at a time."""
    stretch = exponent_bits // teeth
    full, longer = divmod(stretch, blocks)
    sizes = [full + (j < longer) for j in range(blocks)]
    exponent = 0
    for k in reversed(range(max(sizes))):
        for j in range(blocks):
            if k < sizes[j]:
                for i in range(teeth):
                    exponent += (digits >> i & 1) << (i * stretch + sum(sizes[:j]) + k)
                digits >>= teeth
    return exponent


@pytest.mark.parametrize(("teeth", "blocks"), [(1, 1), (2, 3), (3, 2), (8, 1), (12, 6)])
def test_the_table_gives_powers_of_the_generator(private_key: PrivateKey, teeth: int, blocks: int) -> None:
    key = private_key.public
    table = NoiseTable(key, teeth, blocks)
    entropy = SeededEntropy(b"digits")
    for digits in [0, 1, (1 << table.exponent_bits) - 1] + [
        entropy.bits(table.exponent_bits) for _ in range(9)
    ]:
        r = _exponent(digits, teeth, blocks, table.exponent_bits)
        assert table.power(digits) == pow(key.noise_generator, r, key.modulus_squared)


@pytest.mark.parametrize(("teeth", "blocks"), [(1, 1), (2, 3), (3, 2)])
def test_every_exponent_is_as_likely_as_any_other(teeth: int, blocks: int) -> None:
    tiny = PrivateKey(7, 11, SeededEntropy(b"tiny")).public
    table = NoiseTable(tiny, teeth, blocks)
    exponents = {_exponent(d, teeth, blocks, table.exponent_bits) for d in range(1 << table.exponent_bits)}
    assert exponents == set(range(1 << table.exponent_bits))


@pytest.mark.parametrize("bits", [256, 512])
def test_exponents_are_at_least_half_as_long_as_the_modulus(
    bits: int, private_key: PrivateKey, larger_key: PrivateKey
) -> None:
    key = {256: private_key, 512: larger_key}[bits].public
    assert NoiseTable(key).exponent_bits >= bits // 2


@pytest.mark.parametrize(
    ("key_bits", "proven", "short"),
    [(256, 128, 128), (2048, 1024, 256), (3072, 1536, 256), (4096, 2048, 384), (15360, 7680, 512)],
)
def test_short_noise_has_twice_the_bits_of_the_security_level(key_bits: int, proven: int, short: int) -> None:
    assert (noise_bits(key_bits, "proven"), noise_bits(key_bits, "short")) == (proven, short)


def test_short_noise_is_an_encryption_of_zero_too() -> None:
    private_key = PrivateKey.generate(1024, SeededEntropy(b"1024"))
    proven = private_key.public
    short = PublicKey.from_bytes(proven.modulus_bytes, proven.noise_generator_bytes, "short")
    table = NoiseTable(short)
    assert NoiseTable(proven).exponent_bits >= 2 * table.exponent_bits - 2 * TEETH
    draws = [int(table.draw(SeededEntropy(bytes([seed])))) for seed in range(20)]
    assert len(set(draws)) == 20
    assert all(private_key.decrypt(noise) == 0 for noise in draws)


def test_noise_is_an_encryption_of_zero_fresh_at_every_draw(private_key: PrivateKey) -> None:
    key = private_key.public
    table = NoiseTable(key, 4, 4)
    entropy = SeededEntropy(b"draws")
    draws = [int(table.draw(entropy)) for _ in range(50)]
    assert len(set(draws)) == 50
    assert all(private_key.decrypt(noise) == 0 for noise in draws)


def test_noise_without_effect_is_drawn_again() -> None:
    tiny = PrivateKey(7, 11, SeededEntropy(b"tiny")).public
    table = NoiseTable(tiny, 2, 2)
    entropy = SeededEntropy(b"ones")
    assert any(table.power(entropy.bits(table.exponent_bits)) == 1 for _ in range(200))
    assert all(table.draw(entropy) != 1 for _ in range(200))
