"""phe and this floor read each other's ciphertexts, and their ciphers give the same results."""

from __future__ import annotations

from concurrent.futures import Executor

import numpy as np
import phe
import pytest

from common.crypto.cipher import CipherVector, PaillierCipher
from common.crypto.entropy import SeededEntropy
from common.crypto.phe_bridge import PheCipher
from common.crypto.private_key import PrivateKey
from common.errors import LocalProtocolError


@pytest.fixture(scope="module")
def phe_keys(private_key: PrivateKey) -> tuple[phe.PaillierPublicKey, phe.PaillierPrivateKey]:
    """phe's own pair for the same primes."""
    public = phe.PaillierPublicKey(private_key.public.modulus)
    p, q = (int(half.prime) for half in private_key._halves)
    return public, phe.PaillierPrivateKey(public, p, q)


PLAINTEXTS = [0, 1, 2**200, 12345678901234567890]


def test_we_decrypt_what_phe_encrypts(private_key: PrivateKey, phe_keys: tuple) -> None:
    public, _ = phe_keys
    plaintexts = [*PLAINTEXTS, public.n - 1, public.n - 2**100]
    assert [private_key.decrypt(public.raw_encrypt(m)) for m in plaintexts] == plaintexts


def test_phe_decrypts_what_we_encrypt(cipher: PaillierCipher, phe_keys: tuple) -> None:
    public, private = phe_keys
    plaintexts = [*PLAINTEXTS, -1, -(2**100)]
    ciphertexts = cipher.encrypt(plaintexts).opened().ciphertexts()
    assert [private.raw_decrypt(c) for c in ciphertexts] == [m % public.n for m in plaintexts]


def test_phe_decrypts_our_sealed_products(cipher: PaillierCipher, phe_keys: tuple) -> None:
    public, private = phe_keys
    product = cipher.transposed_product(np.array([[3, -1], [-5, 0]]), cipher.encrypt([10, 20]).opened())
    sealed = cipher.seal(product, [1, 2]).opened().ciphertexts()
    assert [private.raw_decrypt(c) for c in sealed] == [(-70 + 1) % public.n, (-10 + 2) % public.n]


def test_phe_computes_on_our_ciphertexts(
    cipher: PaillierCipher, private_key: PrivateKey, phe_keys: tuple
) -> None:
    public, private = phe_keys
    a, b = (phe.EncryptedNumber(public, c) for c in cipher.encrypt([20, -3]).opened().ciphertexts())
    results = {"sum": a + b, "product": a * 7, "negative": b * -5, "with plain": a + 22, "difference": a - b}
    expected = {"sum": 17, "product": 140, "negative": 15, "with plain": 42, "difference": 23}
    assert {name: private.decrypt(number) for name, number in results.items()} == expected
    ours = {name: private_key.decrypt(number.ciphertext()) for name, number in results.items()}
    assert ours == expected


def test_we_compute_on_what_phe_encrypts(cipher: PaillierCipher, phe_keys: tuple) -> None:
    public, private = phe_keys
    vector = CipherVector.of(cipher.key, [public.encrypt(m).ciphertext() for m in (4, -9)])
    product = cipher.transposed_product(np.array([[2, 1 << 40], [-1, 3]]), cipher.add(vector, vector))
    numbers = [phe.EncryptedNumber(public, c) for c in product.ciphertexts()]
    assert [private.decrypt(number) for number in numbers] == [2 * (8 + 9), 2 * ((4 << 40) - 27)]


@pytest.mark.parametrize("scale", [1, 2**32, 2**90])
def test_both_ciphers_give_the_same_product(
    scale: int, private_key: PrivateKey, threads: Executor, cipher: PaillierCipher
) -> None:
    reference = PheCipher(private_key.public, threads, SeededEntropy(b"reference"))
    rng = np.random.default_rng(2)
    matrix = rng.integers(-9, 10, (20, 4)).astype(object) * scale
    vector = reference.encrypt(list(range(-10, 10))).opened()
    # Equal as ciphertexts: no noise enters a product, so both must find the same element of the group.
    assert (
        cipher.transposed_product(matrix, vector).ciphertexts()
        == reference.transposed_product(matrix, vector).ciphertexts()
    )
    assert cipher.add(vector, vector).ciphertexts() == reference.add(vector, vector).ciphertexts()


def test_the_reference_cipher_refuses_what_is_not_an_integer(
    private_key: PrivateKey, threads: Executor
) -> None:
    reference = PheCipher(private_key.public, threads, SeededEntropy(b"reference"))
    vector = reference.encrypt([1]).opened()
    for matrix in (np.ones((1, 1)), np.ones(1, dtype=np.int64)):
        with pytest.raises(LocalProtocolError):
            reference.transposed_product(matrix, vector)
