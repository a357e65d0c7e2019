"""The shares of Gram rounds: what B holds does not tell G, what A holds does not, and together they do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from common.crypto.cipher import PaillierCipher, parse_ciphertexts
from common.crypto.entropy import SystemEntropy
from common.crypto.fixed_point import FixedPoint
from common.crypto.gram_plan import GramPlan, GramRequest, prove_gram
from common.crypto.gram_setup import GramTools, MaskedCrossProducts, ScaledColumns
from common.crypto.private_key import PrivateKey
from common.runtime.compute import InProcessExecutor
from coordinator.he_gram import GramKeyHolder
from tests.attacks.captured import noise_of
from tests.roles.gram_loop import GramLoop, agreement_of, drawn, gram_roles

LEAST_P = 1e-6
SETUPS = 60


def seen_by_b(columns: np.ndarray, plan: GramPlan, setups: int) -> np.ndarray:
    """Return S of many set-ups on the same data, one a row: the entries that B unpacks."""
    rng = np.random.default_rng(1)
    own = rng.normal(size=(len(columns), 2))
    key = PrivateKey.generate(512, SystemEntropy())
    tools = GramTools(
        PaillierCipher(key.public, InProcessExecutor(), SystemEntropy()),
        FixedPoint(32),
        plan,
        SystemEntropy(),
    )
    found = []
    for _ in range(setups):
        masking = MaskedCrossProducts(tools, ScaledColumns.of(columns), 2)
        packed = ScaledColumns.of(own).encoded(slice(None), FixedPoint(32)).astype(object)
        plain = [int(one) + (int(other) << plan.products.slot_bits) for one, other in packed]
        masking.absorb(parse_ciphertexts(tools.cipher.encrypt(plain).to_bytes(), key.public, len(columns)))
        sealed, _ = masking.masked()
        residues = [key.decrypt(one) for one in sealed.opened().ciphertexts()]
        found.append([v for one in residues for v in plan.products.unpack([one], 2, key.public.modulus)])
    return np.array(found, dtype=object)


@pytest.fixture(scope="module")
def plan() -> GramPlan:
    return prove_gram(GramRequest(512, 32, 60, 4))


def test_b_s_shares_are_uniform_over_the_masks_range_whatever_the_columns_are(plan: GramPlan) -> None:
    rng = np.random.default_rng(2)
    worlds = [seen_by_b(columns, plan, SETUPS) for columns in (rng.normal(size=(60, 3)), np.ones((60, 3)))]
    size = 2.0**plan.mask_bits
    fractions = [np.array([float(v) / size + 0.5 for v in world.flat]) for world in worlds]
    for one in fractions:
        assert stats.kstest(one, "uniform").pvalue > LEAST_P
    assert stats.ks_2samp(*fractions).pvalue > LEAST_P
    low = [np.array([float(v % (1 << 40)) / 2**40 for v in world.flat]) for world in worlds]
    assert all(stats.kstest(one, "uniform").pvalue > LEAST_P for one in low)


def test_masks_are_fresh_in_every_slot_and_set_up(plan: GramPlan) -> None:
    seen = seen_by_b(np.ones((60, 3)), plan, 12)
    assert len(set(seen.flat)) == seen.size
    bits = [abs(int(a) - int(b)).bit_length() for a, b in zip(seen[:-1].flat, seen[1:].flat, strict=True)]
    assert min(bits) > plan.mask_bits - 40


def shared() -> tuple[Any, dict[str, Any]]:
    setting = drawn(120, (4, 3))
    loop = GramLoop(setting, GramKeyHolder(agreement_of(setting)), None)
    roles = gram_roles(setting, loop)
    loop.share(roles)
    return setting, roles


def test_the_two_shares_add_up_to_the_products_and_neither_alone_is_near_them() -> None:
    setting, roles = shared()
    a, b = roles["party_a"], roles["party_b"]
    held, masks = b._cross._shares["party_a"], a._cross._shares["party_b"]
    true = a.sharing.columns.values.T @ b.sharing.columns.values
    together = (held.T + masks).astype(float) / 2.0**32
    assert np.abs(together - true).max() < 1e-6
    # B's best guess is its share itself: off by thousands of times what the largest product can be.
    for guess in (held.T, -masks):
        assert np.abs(guess.astype(float) / 2.0**32).min() > 1e3 * setting.rows
        assert np.corrcoef(guess.astype(float).ravel(), true.ravel())[0, 1] ** 2 < 0.9


def test_too_narrow_masks_would_be_noticed(plan: GramPlan) -> None:
    narrow = np.array([[float(v) / 2.0**plan.mask_bits + 0.5 for v in np.arange(-200, 200)]])
    assert stats.kstest(narrow.ravel(), "uniform").pvalue < LEAST_P


def test_what_a_party_has_decrypted_has_not_the_noise_of_what_it_computed() -> None:
    """Whoever knew a party's share, and saw the directions, could otherwise confirm a guess of the share."""
    _, roles = shared()
    sent = {party: role.encrypt_direction(1) for party, role in roles.items()}
    for party, other in (("party_a", "party_b"), ("party_b", "party_a")):
        role, direction = roles[party], sent[other]
        role.absorb_direction(other, direction.block.opened(), direction.complements[party].opened())
        modulus = direction.block.key.modulus
        computed = role._cross._parts[other].ciphertexts()
        sealed = role.masked_product().opened().ciphertexts()
        assert len(sealed) == len(computed)
        assert all(
            noise_of(one, modulus) != noise_of(two, modulus)
            for one, two in zip(sealed, computed, strict=True)
        )
