"""Rule 1.2.1 and 1.2.4: nobody divides its own ciphertext out of what it gets back."""

from __future__ import annotations

import pytest

from common.crypto.cipher import PaillierCipher
from common.crypto.entropy import SystemEntropy
from common.crypto.fixed_point import FixedPoint
from common.data.split import BatchSchedule
from common.runtime.compute import InProcessExecutor
from tests.attacks.captured import Captured, divided, noise_of, product_noise

SCALE = FixedPoint(32)
JOBS = ("full_batch", "two_passive", "phe_backend")


@pytest.fixture(params=JOBS)
def job(request: pytest.FixtureRequest) -> Captured:
    """Return each captured job."""
    captured: Captured = request.getfixturevalue(request.param)
    return captured


def batch(job: Captured, number: int) -> list[int]:
    """Return which rows a round is about."""
    size = None if "party_a2" not in job.wire else 20
    return BatchSchedule(len(job.rows.labels), size, 0).rows_of(number).tolist()


def passive_parties(job: Captured) -> list[str]:
    return [party for party in job.wire if party.startswith("party_a")]


def test_the_attack_reads_z_from_a_sum_that_was_not_re_randomised(full_batch: Captured) -> None:
    key = full_batch.key
    own = PaillierCipher(key, InProcessExecutor(), SystemEntropy()).encrypt([17]).opened().ciphertexts()[0]
    z = int(SCALE.encode(-full_batch.rows.labels)[0])
    sloppy = own * (1 + z * key.modulus) % key.modulus_squared
    assert divided(sloppy, own, key.modulus) == z % key.modulus


def test_a_cannot_divide_its_own_ciphertext_out_of_d_in_any_round(job: Captured) -> None:
    for party in passive_parties(job):
        sent = job.by_round(party, "sent", "EncryptedScores")
        received = job.by_round(party, "received", "EncryptedResiduals")
        assert len(sent) == len(received) == job.rounds
        for number, scores in sent.items():
            residuals = received[number]
            assert len(residuals) == len(scores) == len(batch(job, number))
            for own, returned in zip(scores, residuals, strict=True):
                assert divided(returned, own, job.key.modulus) is None


def test_all_passive_parties_together_cannot_divide_their_ciphertexts_out_of_d(job: Captured) -> None:
    modulus = job.key.modulus
    parties = passive_parties(job)
    sent = [job.by_round(party, "sent", "EncryptedScores") for party in parties]
    received = job.by_round(parties[0], "received", "EncryptedResiduals")
    for number, residuals in received.items():
        for at, returned in enumerate(residuals):
            own = product_noise([scores[number][at] for scores in sent], [1] * len(sent), modulus)
            assert noise_of(returned, modulus) != own


def test_no_ciphertext_of_d_shares_its_noise_with_any_that_a_made_or_received_before(job: Captured) -> None:
    modulus = job.key.modulus
    for party in passive_parties(job):
        made = [
            *job.by_round(party, "sent", "EncryptedScores").values(),
            *job.by_round(party, "sent", "EncryptedScores", "loss_share").values(),
            *job.by_round(party, "sent", "MaskedGradient").values(),
            *job.by_round(party, "received", "EncryptedResiduals").values(),
        ]
        noises = [noise_of(ciphertext, modulus) for ciphertexts in made for ciphertext in ciphertexts]
        assert len(set(noises)) == len(noises)


def test_nothing_leaves_with_noise_1(job: Captured) -> None:
    assert all(noise_of(ciphertext, job.key.modulus) != 1 for ciphertext in job.sent_ciphertexts())


def test_the_loss_cannot_be_divided_by_a_s_part_of_it(full_batch: Captured) -> None:
    modulus = full_batch.key.modulus
    shares = full_batch.by_round("party_a", "sent", "EncryptedScores", "loss_share")
    losses = full_batch.by_round("party_b", "sent", "EncryptedLoss", "ciphertext")
    assert len(shares) == len(losses) == full_batch.rounds
    for number, (share,) in shares.items():
        assert divided(losses[number][0], share, modulus) is None


def test_the_loss_has_not_the_noise_of_the_products_that_went_into_it(full_batch: Captured) -> None:
    """In round 1 z = -y, so a guess of all labels could be confirmed by L_A and Σ z_i u_i."""
    modulus = full_batch.key.modulus
    scores = full_batch.by_round("party_b", "received", "EncryptedScores")[1]
    (share,) = full_batch.by_round("party_b", "received", "EncryptedScores", "loss_share")[1]
    (loss,) = full_batch.by_round("party_b", "sent", "EncryptedLoss", "ciphertext")[1]
    z = SCALE.encode(-full_batch.rows.labels).tolist()
    assert noise_of(loss, modulus) != product_noise([share, *scores], [1, *z], modulus)


def test_parts_of_the_loss_are_re_randomised_with_two_passive_parties(two_passive: Captured) -> None:
    modulus = two_passive.key.modulus
    shares = [
        two_passive.by_round(party, "sent", "RoundApplied", "loss_share") for party in ("party_a", "party_a2")
    ]
    losses = two_passive.by_round("party_b", "sent", "EncryptedLoss", "ciphertext")
    assert sorted(losses) == sorted(shares[0]) == [1, 3, 5, 7, 9, 11]
    for number, (loss,) in losses.items():
        parts = [share[number][0] for share in shares]
        assert noise_of(loss, modulus) != product_noise(parts, [1, 1], modulus)
        assert all(divided(loss, part, modulus) is None for part in parts)


def test_a_s_masked_gradient_has_not_the_noise_of_the_product_that_a_computed(full_batch: Captured) -> None:
    modulus = full_batch.key.modulus
    residuals = full_batch.by_round("party_a", "received", "EncryptedResiduals")
    gradients = full_batch.by_round("party_a", "sent", "MaskedGradient")
    assert len(gradients) == full_batch.rounds
    features = SCALE.encode(full_batch.rows.passive)
    for number, gradient in gradients.items():
        for column, ciphertext in zip(features.T.tolist(), gradient, strict=True):
            product = product_noise(residuals[number], column, modulus)
            assert noise_of(ciphertext, modulus) != product


def test_b_s_masked_gradient_has_not_the_noise_of_the_product_that_b_computed(full_batch: Captured) -> None:
    modulus = full_batch.key.modulus
    scores = full_batch.by_round("party_b", "received", "EncryptedScores")
    gradients = full_batch.by_round("party_b", "sent", "MaskedGradient")
    features = SCALE.encode(full_batch.rows.active)
    for number, gradient in gradients.items():
        assert len(gradient) == features.shape[1] + 1  # the intercept's column of ones
        columns = [*features.T.tolist(), [1 << 32] * len(features)]
        for column, ciphertext in zip(columns, gradient, strict=True):
            assert noise_of(ciphertext, modulus) != product_noise(scores[number], column, modulus)


def test_a_0_1_column_leaves_neither_as_its_input_nor_as_1(full_batch: Captured) -> None:
    """A column with a single 1 would send one row's residual on; one of zeros would send 1."""
    modulus, middle = full_batch.key.modulus, len(full_batch.rows.labels) // 2
    assert full_batch.rows.passive[:, 1].sum() == full_batch.rows.passive[middle, 1] == 1
    residuals = full_batch.by_round("party_a", "received", "EncryptedResiduals")
    for number, gradient in full_batch.by_round("party_a", "sent", "MaskedGradient").items():
        inputs = {noise_of(ciphertext, modulus) for ciphertext in residuals[number]}
        inputs |= {product_noise([residuals[number][middle]], [1 << 32], modulus), 1}
        assert noise_of(gradient[1], modulus) not in inputs


@pytest.mark.parametrize("backend", ["full_batch", "phe_backend"])
def test_every_ciphertext_on_the_wire_is_under_its_own_noise(
    backend: str, request: pytest.FixtureRequest
) -> None:
    """Two with the same noise would give away the difference of their plaintexts, equal ones equality."""
    job: Captured = request.getfixturevalue(backend)
    ciphertexts = job.sent_ciphertexts()
    rows, columns = job.rows.passive.shape[0], 4 + 3 + 1
    assert len(ciphertexts) == job.rounds * (2 * rows + columns + 2)
    noises = {noise_of(ciphertext, job.key.modulus) for ciphertext in ciphertexts}
    assert len(noises) == len(ciphertexts)


def test_equal_values_are_encrypted_differently(full_batch: Captured) -> None:
    """In round 1 w_A = 0, so every u_A is 0: the same plaintext forty times."""
    scores = full_batch.by_round("party_a", "sent", "EncryptedScores")[1]
    assert len({noise_of(ciphertext, full_batch.key.modulus) for ciphertext in scores}) == len(scores) == 40


def test_with_two_passive_parties_each_receives_ciphertexts_under_their_own_noise(
    two_passive: Captured,
) -> None:
    """[[d]] itself is the same for both, so what must differ is what one party sees."""
    for party in passive_parties(two_passive):
        seen = [
            *two_passive.by_round(party, "sent", "EncryptedScores").values(),
            *two_passive.by_round(party, "sent", "RoundApplied", "loss_share").values(),
            *two_passive.by_round(party, "sent", "MaskedGradient").values(),
            *two_passive.by_round(party, "received", "EncryptedResiduals").values(),
        ]
        noises = [noise_of(ciphertext, two_passive.key.modulus) for part in seen for ciphertext in part]
        assert len(set(noises)) == len(noises)
