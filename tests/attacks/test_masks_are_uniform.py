"""Rule 1.2.2: what C decrypts is uniform on Z_N, fresh for every entry and round, and tells C nothing.

`DecryptedGradient` carries the very residues that C decrypted. The masks come from the operating system and
no test can seed them, so all that is asked is that the observation is not as unlikely as one in a million.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from common.rpc.wiretap import Passage
from tests.attacks.captured import Captured
from tests.attacks.world import Rows, World, job_of

LEAST_P = 1e-6
PARTIES = ("party_a", "party_b")
_BINS = 16


def assert_uniform(residues: list[int], modulus: int) -> None:
    """Fail if integers in [0, modulus) do not look uniform: as a whole, in the top and in the low bits."""
    assert len(residues) >= 300
    fractions = [residue / modulus for residue in residues]
    assert stats.kstest(fractions, "uniform").pvalue > LEAST_P
    top = np.bincount([residue * _BINS // modulus for residue in residues], minlength=_BINS)
    low = np.bincount([residue % _BINS for residue in residues], minlength=_BINS)
    assert stats.chisquare(top).pvalue > LEAST_P
    assert stats.chisquare(low).pvalue > LEAST_P
    # The bits far below N's length are fair coins each; so their number of ones is normally distributed.
    bits = modulus.bit_length() - 32
    ones = sum((residue % (1 << bits)).bit_count() for residue in residues)
    excess = (ones - len(residues) * bits / 2) / math.sqrt(len(residues) * bits / 4)
    assert 2 * stats.norm.sf(abs(excess)) > LEAST_P


def true_gradients(job: Captured) -> dict[str, np.ndarray]:
    """Return what the parties unmask, a row a round: X_A'd, and X_B'u_A, from a run on pooled data."""
    rows = job.rows
    own = np.column_stack([rows.active, np.ones(len(rows.labels))])
    w_a, w_b = np.zeros(rows.passive.shape[1]), np.zeros(own.shape[1])
    penalties = np.append(np.full(rows.active.shape[1], 1e-3), 0.0)
    found: dict[str, list[np.ndarray]] = {"party_a": [], "party_b": []}
    for _ in range(job.rounds):
        scores = rows.passive @ w_a
        residuals = scores + own @ w_b - rows.labels
        found["party_a"].append(rows.passive.T @ residuals)
        found["party_b"].append(own.T @ scores)
        w_a = w_a - 0.05 * (found["party_a"][-1] / len(residuals) + 1e-3 * w_a)
        w_b = w_b - 0.05 * (own.T @ residuals / len(residuals) + penalties * w_b)
    return {party: np.array(gradients) for party, gradients in found.items()}


def test_the_statistics_notice_masks_that_are_too_short_or_drawn_from_too_few_numbers(
    full_batch: Captured,
) -> None:
    modulus = full_batch.key.modulus
    drawn = random.Random(1)
    short = [drawn.randrange(1 << 128) for _ in range(480)]
    even = [drawn.randrange(modulus // 2) * 2 for _ in range(480)]
    narrow = [drawn.randrange(modulus * 7 // 8) for _ in range(480)]
    for residues in (short, even, narrow):
        with pytest.raises(AssertionError):
            assert_uniform(residues, modulus)


@pytest.mark.parametrize("party", PARTIES)
def test_what_c_decrypts_is_uniform_on_all_residues(full_batch: Captured, party: str) -> None:
    residues = full_batch.residues(party)
    assert len(residues) == full_batch.rounds
    assert_uniform([residue for gradient in residues for residue in gradient], full_batch.key.modulus)


@pytest.mark.parametrize("party", PARTIES)
def test_masks_are_fresh_in_every_round(full_batch: Captured, party: str) -> None:
    """If a mask came back, the difference of two rounds would be the difference of two gradients."""
    modulus, residues = full_batch.key.modulus, full_batch.residues(party)
    for lag in (1, 2):
        pairs = zip(residues, residues[lag:], strict=False)
        differences = [(b - a) % modulus for older, newer in pairs for a, b in zip(older, newer, strict=True)]
        assert_uniform(differences, modulus)


@pytest.mark.parametrize("party", PARTIES)
def test_masks_are_fresh_in_every_entry(full_batch: Captured, party: str) -> None:
    modulus = full_batch.key.modulus
    differences = [
        (b - a) % modulus for gradient in full_batch.residues(party) for a, b in itertools.pairwise(gradient)
    ]
    assert_uniform(differences, modulus)


def test_masks_of_the_two_parties_have_nothing_to_do_with_each_other(full_batch: Captured) -> None:
    modulus = full_batch.key.modulus
    both = zip(full_batch.residues("party_a"), full_batch.residues("party_b"), strict=True)
    assert_uniform(
        [(b - a) % modulus for one, other in both for a, b in zip(one, other, strict=True)], modulus
    )


@pytest.mark.parametrize("party", PARTIES)
def test_what_c_decrypts_does_not_go_with_the_true_gradient(full_batch: Captured, party: str) -> None:
    modulus = full_batch.key.modulus
    seen = np.array(full_batch.residues(party), dtype=object)
    true = true_gradients(full_batch)[party]
    assert seen.shape == true.shape
    signed = np.array([[value / modulus for value in gradient] for gradient in seen])
    low = np.array([[value % (1 << 64) / 2**64 for value in gradient] for gradient in seen])
    for view in (signed, low):
        for column in range(true.shape[1]):
            assert stats.spearmanr(view[1:, column], true[1:, column]).pvalue > LEAST_P


@pytest.mark.parametrize("party", PARTIES)
def test_c_does_not_see_a_gradient_even_in_the_first_round(full_batch: Captured, party: str) -> None:
    """Read as numbers at the job's scale, residues are nowhere near a gradient, in any entry of any round."""
    modulus = full_batch.key.modulus
    true = true_gradients(full_batch)[party]
    for gradient, expected in zip(full_batch.residues(party), true, strict=True):
        signed = [min(residue, residue - modulus, key=abs) for residue in gradient]
        decoded = np.array([residue / 2**64 for residue in signed])
        assert (np.abs(decoded - expected) > 1e9).all()


def test_the_same_job_twice_shows_c_other_residues_whatever_the_global_generators_say(tmp_path: Path) -> None:
    async def seen(root: Path) -> list[Passage]:
        random.seed(1)
        np.random.seed(1)
        world = World(root)
        Rows.drawn(40, (4, 3)).write(world)
        async with world.running("coordinator", "party_a", "party_b"):
            await world.train(job_of())
        return world.wire["coordinator"]

    rows = Rows.drawn(40, (4, 3))
    first, second = (
        Captured({"coordinator": asyncio.run(seen(tmp_path / name))}, rows, 3) for name in ("1", "2")
    )
    residues = [
        residue
        for job in (first, second)
        for party in PARTIES
        for row in job.residues(party)
        for residue in row
    ]
    assert len(residues) == len(set(residues)) == 2 * 3 * (4 + 4)
    assert first.key != second.key
