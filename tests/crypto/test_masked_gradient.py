"""A gradient on its way through the key holder, several entries in one plaintext."""

from __future__ import annotations

import numpy as np
import pytest

from common.crypto.cipher import PaillierCipher
from common.crypto.entropy import SeededEntropy, uniform_masks
from common.crypto.fixed_point import FixedPoint
from common.crypto.masked_gradient import MaskedGradient
from common.crypto.packing import Packing
from common.crypto.plan import FEATURE_LIMIT, SCORE_LIMIT, PlanRequest, gradient_packing, prove_ranges
from common.crypto.private_key import PrivateKey
from common.errors import NumericError
from common.runtime.compute import InProcessExecutor

SCALE = FixedPoint(16)


@pytest.fixture(scope="module")
def cipher(larger_key: PrivateKey) -> PaillierCipher:
    return PaillierCipher(larger_key.public, InProcessExecutor(), SeededEntropy(b"cipher"))


def packing() -> Packing:
    found = gradient_packing(512, SCALE.scale_bits)
    assert found.slots == 3
    return found


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 7])
def test_a_packed_gradient_comes_back_as_it_was(
    cipher: PaillierCipher, larger_key: PrivateKey, columns: int
) -> None:
    generator = np.random.default_rng(columns)
    X = generator.normal(size=(20, columns)) * [10.0 ** (at % 5) for at in range(columns)]
    d = generator.normal(size=20) * 1e3
    gradient = MaskedGradient(cipher, SCALE, SeededEntropy(b"masks"), packing())
    gradient.absorb(X, cipher.encrypt(SCALE.encode(d).tolist()).opened())
    masked = gradient.masked(columns)
    assert len(masked) == -(-columns // 3)
    found = gradient.unmask(larger_key.decrypt_all(masked.opened().ciphertexts()))
    exact = SCALE.encode(X).T.astype(object) @ SCALE.encode(d).astype(object)
    assert found.tolist() == [value / 2**32 for value in exact]


@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, -1, -1), (-1, 1, -1), (1, -1, 1)])
def test_entries_at_the_limits_do_not_run_into_their_neighbours(
    cipher: PaillierCipher, larger_key: PrivateKey, signs: tuple[int, ...]
) -> None:
    X = np.array([signs]) * FEATURE_LIMIT
    gradient = MaskedGradient(cipher, SCALE, SeededEntropy(b"masks"), packing())
    gradient.absorb(X, cipher.encrypt(SCALE.encode(np.array([-SCORE_LIMIT])).tolist()).opened())
    found = gradient.unmask(larger_key.decrypt_all(gradient.masked(3).opened().ciphertexts()))
    assert found.tolist() == [-sign * FEATURE_LIMIT * SCORE_LIMIT for sign in signs]


def test_the_key_holder_sees_the_sum_of_the_packed_entries_and_a_mask_that_is_uniform_modulo_n(
    cipher: PaillierCipher, larger_key: PrivateKey
) -> None:
    """One mask below N for each plaintext: G + R mod N is then uniform on Z_N, whatever G is."""
    modulus = larger_key.public.modulus
    gradient = MaskedGradient(cipher, SCALE, SeededEntropy(b"masks"), packing())
    gradient.absorb(np.eye(4), cipher.encrypt(SCALE.encode(np.arange(4.0)).tolist()).opened())
    seen = larger_key.decrypt_all(gradient.masked(4).opened().ciphertexts())
    masks = uniform_masks(SeededEntropy(b"masks"), 2, modulus)
    packed = packing().pack([at << 32 for at in range(4)])
    assert list(seen) == [(value + mask) % modulus for value, mask in zip(packed, masks, strict=True)]
    assert min(masks).bit_length() > 500


def test_an_answer_that_is_not_ours_does_not_pass_for_a_gradient(cipher: PaillierCipher) -> None:
    gradient = MaskedGradient(cipher, SCALE, SeededEntropy(b"masks"), packing())
    gradient.absorb(np.eye(3), cipher.encrypt([1, 2, 3]).opened())
    gradient.masked(3)
    with pytest.raises(NumericError, match="does not fit its slots"):
        gradient.unmask([cipher.key.modulus // 3])


@pytest.mark.parametrize("scale_bits", [1, 16, 32, 50, 60])
@pytest.mark.parametrize("key_bits", [1024, 2048, 3072])
def test_every_gradient_that_the_plan_allows_fits_a_slot_and_all_slots_fit_the_key(
    scale_bits: int, key_bits: int
) -> None:
    found = gradient_packing(key_bits, scale_bits)
    assert found.slots * found.slot_bits <= key_bits - 3
    largest = 2**32 * int(FEATURE_LIMIT) * 256 * int(SCORE_LIMIT) << (2 * scale_bits)
    assert largest < 1 << (found.slot_bits - 1)
    with pytest.raises(NumericError, match="packed for"):
        prove_ranges(PlanRequest(key_bits, scale_bits, 2**32 + 1, 3))
