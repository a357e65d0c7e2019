"""Keys: the conditions of Damgård, Jurik and Nielsen, decryption, and that nothing of them gets out."""

from __future__ import annotations

import copy
import pickle
from math import gcd

import pytest

from common.crypto.entropy import SeededEntropy, SystemEntropy
from common.crypto.paillier import encrypt
from common.crypto.phe_bridge import generate_primes
from common.crypto.private_key import PrivateKey
from common.errors import LocalProtocolError


@pytest.mark.parametrize("bits", [128, 256, 258, 512])
def test_generated_primes_meet_the_conditions(bits: int) -> None:
    for _ in range(3):
        p, q = generate_primes(bits)
        assert (p * q).bit_length() == bits
        assert p % 4 == q % 4 == 3
        assert gcd(p - 1, q - 1) == 2
        assert pow(3, p - 1, p) == pow(3, q - 1, q) == 1


@pytest.mark.parametrize("bits", [257, 62, 0])
def test_key_lengths_that_cannot_be_made_are_refused(bits: int) -> None:
    with pytest.raises(LocalProtocolError):
        generate_primes(bits)


@pytest.mark.parametrize(("p", "q"), [(7, 7), (5, 7), (7, 13), (7, 19)])
def test_primes_outside_the_conditions_are_refused(p: int, q: int) -> None:
    with pytest.raises(LocalProtocolError):
        PrivateKey(p, q, SeededEntropy(b""))


def test_decryption_by_halves_equals_the_textbook(private_key: PrivateKey) -> None:
    key = private_key.public
    p, q = (int(half.prime) for half in private_key._halves)
    order = (p - 1) * (q - 1)
    entropy = SeededEntropy(b"textbook")
    for _ in range(20):
        ciphertext = encrypt(key, entropy.bits(250), pow(entropy.bits(250), key.modulus, key.modulus_squared))
        textbook = (pow(ciphertext, order, key.modulus_squared) - 1) // key.modulus
        assert private_key.decrypt(ciphertext) == textbook * pow(order, -1, key.modulus) % key.modulus


def test_the_ends_of_the_ring_decrypt(private_key: PrivateKey) -> None:
    key = private_key.public
    for plaintext in (0, 1, key.modulus // 2, key.modulus - 1):
        assert private_key.decrypt(encrypt(key, plaintext, key.noise_generator)) == plaintext


def test_what_is_not_a_ciphertext_is_not_decrypted(private_key: PrivateKey) -> None:
    for ciphertext in (0, -1, private_key.public.modulus_squared):
        with pytest.raises(LocalProtocolError):
            private_key.decrypt(ciphertext)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 23])
def test_many_ciphertexts_are_decrypted_as_one_by_one(private_key: PrivateKey, count: int) -> None:
    key = private_key.public
    plain = [value * value for value in range(count)]
    ciphertexts = [encrypt(key, value, key.noise_generator) for value in plain]
    assert private_key.decrypt_all(ciphertexts) == tuple(plain)
    assert [private_key.decrypt(ciphertext) for ciphertext in ciphertexts] == plain


def test_no_ciphertext_that_a_peer_chose_is_raised_to_the_secret_power(private_key: PrivateKey) -> None:
    chosen = encrypt(private_key.public, 5, private_key.public.noise_generator)
    blinded = [int(one) for _ in range(3) for one in private_key._blinded([chosen, chosen])]
    assert len(set(blinded)) == 6
    assert chosen not in blinded
    assert {private_key.decrypt(one) for one in blinded} == {5}


def test_a_private_key_is_neither_printed_nor_pickled_nor_copied(private_key: PrivateKey) -> None:
    secrets = [str(int(half.prime)) for half in private_key._halves]
    for shown in (repr(private_key), str(private_key), f"{private_key}", repr(private_key._halves)):
        assert not any(secret in shown for secret in secrets)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(LocalProtocolError):
            attempt(private_key)


def test_the_noise_generator_comes_from_the_given_entropy(private_key: PrivateKey) -> None:
    p, q = (int(half.prime) for half in private_key._halves)
    first, again = (PrivateKey(p, q, SeededEntropy(b"x")).public for _ in range(2))
    other = PrivateKey(p, q, SystemEntropy()).public
    assert first.noise_generator == again.noise_generator != other.noise_generator
