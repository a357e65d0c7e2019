"""The seam: homomorphism, fresh noise, what may be sent as a type, and what is refused from outside."""

from __future__ import annotations

import ast
import contextlib
import copy
import pickle
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import common
from common.crypto.cipher import Cipher, CipherVector, PaillierCipher, SealedVector, parse_ciphertexts
from common.crypto.entropy import SeededEntropy, SystemEntropy
from common.crypto.paillier import encrypt
from common.crypto.phe_bridge import PheCipher
from common.crypto.private_key import PrivateKey
from common.errors import LocalProtocolError, RemoteProtocolError

VALUES = st.lists(st.integers(-(2**80), 2**80), min_size=1, max_size=6)


def decrypted(private_key: PrivateKey, vector: CipherVector) -> list[int]:
    """Return the signed plaintexts."""
    modulus = private_key.public.modulus
    residues = [private_key.decrypt(ciphertext) for ciphertext in vector.ciphertexts()]
    return [residue - modulus if residue > modulus // 2 else residue for residue in residues]


@pytest.fixture(params=[PaillierCipher, PheCipher])
def each_cipher(request: pytest.FixtureRequest, private_key: PrivateKey, threads: Executor) -> Cipher:
    """Both implementations of the seam."""
    cipher: Cipher = request.param(private_key.public, threads, SeededEntropy(b"each"))
    return cipher


@given(left=VALUES, data=st.data())
@settings(max_examples=30)
@pytest.mark.parametrize("implementation", [PaillierCipher, PheCipher])
def test_sums_and_sealed_sums_decrypt_to_sums(
    implementation: type[PaillierCipher],
    left: list[int],
    data: st.DataObject,
    private_key: PrivateKey,
    threads: Executor,
) -> None:
    cipher = implementation(private_key.public, threads, SeededEntropy(b"sums"))
    same = st.lists(st.integers(-(2**80), 2**80), min_size=len(left), max_size=len(left))
    right, addends = data.draw(same), data.draw(same)
    total = cipher.add(cipher.encrypt(left).opened(), cipher.encrypt(right).opened())
    assert decrypted(private_key, total) == [a + b for a, b in zip(left, right, strict=True)]
    sealed = cipher.seal(total, addends)
    assert decrypted(private_key, sealed.opened()) == [
        a + b + c for a, b, c in zip(left, right, addends, strict=True)
    ]


def test_masks_of_the_whole_ring_add_modulo_n(each_cipher: Cipher, private_key: PrivateKey) -> None:
    modulus = private_key.public.modulus
    masks = [0, 1, modulus // 3, modulus // 2, modulus - 1]
    sealed = each_cipher.seal(each_cipher.encrypt([10, -20, 30, -40, 50]).opened(), masks)
    residues = [private_key.decrypt(ciphertext) for ciphertext in sealed.opened().ciphertexts()]
    assert [(r - m) % modulus for r, m in zip(residues, masks, strict=True)] == [
        v % modulus for v in (10, -20, 30, -40, 50)
    ]


def test_encryptions_of_equal_values_differ(each_cipher: Cipher) -> None:
    ciphertexts = each_cipher.encrypt([7] * 100).opened().ciphertexts()
    again = each_cipher.encrypt([7] * 100).opened().ciphertexts()
    assert len({*ciphertexts, *again}) == 200


def test_sealing_never_gives_the_input_nor_one(each_cipher: Cipher, private_key: PrivateKey) -> None:
    one = CipherVector.of(private_key.public, [1] * 70)
    sealed = each_cipher.seal(one, [0] * 70).opened().ciphertexts()
    assert 1 not in sealed
    assert len(set(sealed)) == 70
    before = each_cipher.encrypt(list(range(70))).opened()
    after = each_cipher.seal(before, [0] * 70).opened().ciphertexts()
    assert not set(before.ciphertexts()) & set(after)


def test_what_a_party_added_cannot_be_divided_out_of_a_sealed_sum(
    each_cipher: Cipher, private_key: PrivateKey
) -> None:
    key = private_key.public
    addends = list(range(-8, 8))
    before = each_cipher.encrypt([3] * 16).opened()
    after = each_cipher.seal(before, addends).opened()
    for ours, theirs in zip(before.ciphertexts(), after.ciphertexts(), strict=True):
        quotient = theirs * pow(ours, -1, key.modulus_squared) % key.modulus_squared
        assert quotient % key.modulus != 1  # (1 + m·N) would be 1 modulo N


def test_every_chunk_has_noise_of_its_own(private_key: PrivateKey, processes: Executor) -> None:
    for entropy in (SeededEntropy(b"chunks"), SystemEntropy()):
        cipher = PaillierCipher(private_key.public, processes, entropy)
        sealed = cipher.encrypt([0] * 200)
        assert len(set(sealed.opened().ciphertexts())) == 200
        assert decrypted(private_key, sealed.opened()) == [0] * 200


def test_order_survives_the_chunks_and_the_processes(private_key: PrivateKey, processes: Executor) -> None:
    values = list(range(-150, 150))
    for implementation in (PaillierCipher, PheCipher):
        cipher = implementation(private_key.public, processes, SeededEntropy(b"order"))
        sealed = cipher.seal(cipher.encrypt(values).opened(), [1000] * 300)
        assert decrypted(private_key, sealed.opened()) == [value + 1000 for value in values]


def test_numpy_integers_are_taken_as_they_are(each_cipher: Cipher, private_key: PrivateKey) -> None:
    values = np.array([-(2**62), 2**62, 5])
    assert decrypted(private_key, each_cipher.encrypt(list(values)).opened()) == values.tolist()


def test_nothing_gives_nothing(each_cipher: Cipher) -> None:
    assert len(each_cipher.encrypt([])) == 0
    assert each_cipher.encrypt([]).to_bytes() == b""


def test_lengths_and_keys_that_do_not_fit_are_refused(each_cipher: Cipher, larger_key: PrivateKey) -> None:
    two, three = each_cipher.encrypt([1, 2]).opened(), each_cipher.encrypt([1, 2, 3]).opened()
    foreign = CipherVector.of(larger_key.public, [1, 1])
    for wrong in (three, foreign):
        with pytest.raises(LocalProtocolError):
            each_cipher.add(two, wrong)
        with pytest.raises(LocalProtocolError):
            each_cipher.add(wrong, two)
        with pytest.raises(LocalProtocolError):
            each_cipher.seal(wrong, [0, 0])
        with pytest.raises(LocalProtocolError):
            each_cipher.transposed_product(np.ones((2, 1), dtype=np.int64), wrong)
    with pytest.raises(LocalProtocolError):
        CipherVector.joined(each_cipher.key, [two, foreign])


# What may be sent, as a type.


def test_a_sealed_vector_cannot_be_made_from_a_cipher_vector(cipher: PaillierCipher) -> None:
    vector = cipher.encrypt([1]).opened()
    for forged in (None, object(), True):
        with pytest.raises(LocalProtocolError):
            SealedVector(vector, forged)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        SealedVector(vector)  # type: ignore[call-arg]


def test_a_cipher_vector_has_no_bytes_to_send(cipher: PaillierCipher) -> None:
    vector = cipher.encrypt([1]).opened()
    assert not hasattr(vector, "to_bytes")
    with pytest.raises(TypeError):
        bytes(vector)  # type: ignore[call-overload]


def test_sealed_vectors_are_neither_pickled_nor_copied(cipher: PaillierCipher) -> None:
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(LocalProtocolError):
            attempt(cipher.encrypt([1]))


def test_only_the_two_ciphers_hold_the_seal() -> None:
    holders = set()
    root = Path(common.__file__).parents[1]
    for room in ("common", "party_a", "party_b", "coordinator"):
        for path in (root / room).rglob("*.py"):
            names = {
                name
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                for name in (
                    getattr(node, "id", None),
                    getattr(node, "attr", None),
                    getattr(node, "name", None),
                )
            }
            if {"SEAL", "_Seal"} & names:
                holders.add(path.relative_to(root).as_posix())
    assert holders == {"common/crypto/cipher.py", "common/crypto/phe_bridge.py"}


def test_vectors_do_not_print_their_content(cipher: PaillierCipher) -> None:
    sealed = cipher.encrypt([1, 2])
    assert repr(sealed) == "SealedVector(2 ciphertexts)"
    assert repr(sealed.opened()) == "CipherVector(2 ciphertexts)"


# Cutting and joining.


def test_vectors_are_cut_and_joined(cipher: PaillierCipher) -> None:
    vector = cipher.encrypt(list(range(5))).opened()
    numbers = vector.ciphertexts()
    assert vector[1:3].ciphertexts() == numbers[1:3]
    assert vector[3:].ciphertexts() == numbers[3:]
    assert vector[4:2].ciphertexts() == []
    assert CipherVector.joined(cipher.key, [vector[:2], vector[2:]]).ciphertexts() == numbers
    assert len(CipherVector.joined(cipher.key, [])) == 0
    with pytest.raises(LocalProtocolError):
        vector[::2]
    with pytest.raises(LocalProtocolError):
        CipherVector(cipher.key, b"\1")


# What comes from outside.


def test_sealed_bytes_are_of_one_width_and_parse_back(cipher: PaillierCipher) -> None:
    sealed = cipher.encrypt([1, 2, 3])
    data = sealed.to_bytes()
    assert len(data) == 3 * cipher.key.ciphertext_bytes
    for expected in (3, None):
        assert parse_ciphertexts(data, cipher.key, expected).ciphertexts() == sealed.opened().ciphertexts()


def test_bytes_that_are_not_ciphertexts_are_refused(cipher: PaillierCipher, private_key: PrivateKey) -> None:
    key = cipher.key
    good = cipher.encrypt([1, 2]).to_bytes()
    p = int(private_key._halves[0].prime)

    def with_third(number: int) -> bytes:
        return good + number.to_bytes(key.ciphertext_bytes, "big")

    pieces = {
        "nothing": b"",
        "torn": good[:-1],
        "one byte": b"\1",
        "zero": with_third(0),
        "N": with_third(key.modulus),
        "a prime": with_third(p),
        "a multiple of a prime": with_third(p * 12345),
        "N squared": with_third(key.modulus_squared),
        "N squared and one": with_third(key.modulus_squared + 1),
        "all ones": good + b"\xff" * key.ciphertext_bytes,
    }
    accepted = []
    for name, data in pieces.items():
        with contextlib.suppress(RemoteProtocolError):
            parse_ciphertexts(data, key, None)
            accepted.append(name)
    assert not accepted


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_another_number_than_agreed_is_refused(cipher: PaillierCipher, expected: int) -> None:
    with pytest.raises(RemoteProtocolError, match="2 ciphertexts"):
        parse_ciphertexts(cipher.encrypt([1, 2]).to_bytes(), cipher.key, expected)


def test_textbook_ciphertexts_and_ours_are_one_kind(cipher: PaillierCipher, private_key: PrivateKey) -> None:
    key = cipher.key
    textbook = CipherVector.of(key, [encrypt(key, 41, pow(99, key.modulus, key.modulus_squared))])
    total = cipher.add(textbook, cipher.encrypt([1]).opened())
    assert decrypted(private_key, total) == [42]


@pytest.mark.fullsize
def test_the_whole_seam_at_2048_bits(processes: Executor) -> None:
    private_key = PrivateKey.generate(2048, SystemEntropy())
    assert private_key.public.bits == 2048
    rng = np.random.default_rng(1)
    matrix = rng.integers(-(2**36), 2**36, (64, 3))
    values = [int(value) for value in rng.integers(-(2**40), 2**40, 64)]
    expected = [sum(int(x) * v for x, v in zip(column, values, strict=True)) for column in matrix.T]
    for implementation in (PaillierCipher, PheCipher):
        cipher = implementation(private_key.public, processes, SystemEntropy())
        received = parse_ciphertexts(cipher.encrypt(values).to_bytes(), private_key.public, 64)
        product = cipher.transposed_product(matrix, received)
        assert decrypted(private_key, product) == expected
        assert decrypted(private_key, cipher.seal(product, [1, 2, 3]).opened()) == [
            e + a for e, a in zip(expected, (1, 2, 3), strict=True)
        ]
