"""The integers under everything: known answers with a key small enough to check by hand, and key parsing."""

from __future__ import annotations

import contextlib
import pickle
from math import gcd

from common.crypto.entropy import SeededEntropy
from common.crypto.paillier import PublicKey, encrypt
from common.crypto.private_key import PrivateKey
from common.errors import RemoteProtocolError

TINY = PrivateKey(7, 11, SeededEntropy(b"tiny"))  # N = 77, N² = 5929


def test_known_ciphertext_of_the_textbook() -> None:
    # (1 + 42·77)·17^77 mod 5929
    assert encrypt(TINY.public, 42, pow(17, 77, 5929)) == 4331
    assert TINY.decrypt(4331) == 42


def test_every_plaintext_under_every_noise_decrypts_to_itself() -> None:
    units = [r for r in range(1, 77) if gcd(r, 77) == 1]
    for r in units:
        noise = pow(r, 77, 5929)
        assert [TINY.decrypt(encrypt(TINY.public, m, noise)) for m in range(77)] == list(range(77))


def test_products_are_sums_and_powers_are_multiples_for_every_pair() -> None:
    noise = pow(2, 77, 5929)
    ciphertexts = [encrypt(TINY.public, m, noise) for m in range(77)]
    for a in range(77):
        assert [TINY.decrypt(ciphertexts[a] * c % 5929) for c in ciphertexts] == [
            (a + b) % 77 for b in range(77)
        ]
        assert TINY.decrypt(pow(ciphertexts[a], -3, 5929)) == -3 * a % 77


def test_adding_a_plaintext_leaves_it_readable_by_division() -> None:
    # Why a CipherVector cannot be sent (PROTOCOLS rule 1.2.1): (c' / c - 1) / N is the plaintext.
    before = encrypt(TINY.public, 5, pow(3, 77, 5929))
    after = before * (1 + 33 * 77) % 5929
    assert (after * pow(before, -1, 5929) % 5929 - 1) // 77 == 33


def test_the_noise_generator_is_an_nth_power_of_a_non_residue() -> None:
    generator = TINY.public.noise_generator
    assert TINY.decrypt(generator) == 0
    # -x² has Jacobi symbol +1 and is a square modulo neither prime, when both are 3 mod 4.
    assert pow(generator, 3, 7) == 6
    assert pow(generator, 5, 11) == 10


def test_a_key_survives_the_wire_and_the_pickle(private_key: PrivateKey) -> None:
    key = private_key.public
    parsed = PublicKey.from_bytes(key.modulus_bytes, key.noise_generator_bytes)
    assert parsed == key
    assert parsed.key_id == key.key_id
    assert pickle.loads(pickle.dumps(key)) == key  # noqa: S301 our own bytes
    assert (key.bits, key.residue_bytes, key.ciphertext_bytes) == (256, 32, 64)


def test_keys_that_differ_in_either_number_have_different_ids(private_key: PrivateKey) -> None:
    key = private_key.public
    other = PublicKey(key.modulus, key.noise_generator + 1)
    third = PublicKey(key.modulus + 2, key.noise_generator)
    assert len({key.key_id, other.key_id, third.key_id}) == 3


def test_a_key_does_not_print_its_numbers(private_key: PrivateKey) -> None:
    assert str(private_key.public.modulus) not in repr(private_key.public)


def _bytes(number: int, width: int = 0) -> bytes:
    return number.to_bytes(width or (number.bit_length() + 7) // 8, "big")


def test_what_cannot_be_a_key_is_refused(private_key: PrivateKey) -> None:
    key = private_key.public
    prime = (1 << 255) - 19
    generator = key.noise_generator_bytes
    p = next(p for p in (int(half.prime) for half in private_key._halves))
    impostors = {
        "empty": (b"", b""),
        "short": (_bytes(77), _bytes(766)),
        "even": (_bytes(key.modulus + 1), generator),
        "prime": (_bytes(prime), generator),
        "square": (_bytes(p * p), generator),
        "padded": (b"\0" + key.modulus_bytes, generator),
        "generator 0": (key.modulus_bytes, bytes(64)),
        "generator 1": (key.modulus_bytes, _bytes(1, 64)),
        "generator too large": (key.modulus_bytes, b"\xff" * 64),
        "generator shares a factor": (key.modulus_bytes, _bytes(p, 64)),
        "generator of another width": (key.modulus_bytes, b"\0" + generator),
    }
    accepted = []
    for name, (modulus, noise_generator) in impostors.items():
        with contextlib.suppress(RemoteProtocolError):
            PublicKey.from_bytes(modulus, noise_generator)
            accepted.append(name)
    assert not accepted
