"""Ids as points of Curve25519."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from common.crypto.entropy import SeededEntropy
from common.crypto.psi import _multiply_chunk
from common.crypto.psi_curve import (
    SecretScalar,
    check_points,
    elligator2,
    hash_to_curve,
    multiply,
    split_points,
)
from common.errors import RemoteProtocolError

P = 2**255 - 19

# RFC 9380, J.4.2 (curve25519_XMD:SHA-512_ELL2_NU_): u, and x of Q = map_to_curve(u).
RFC_9380 = [
    (
        "608d892b641f0328523802a6603427c26e55e6f27e71a91a478148d45b5093cd",
        "51125222da5e763d97f3c10fcc92ea6860b9ccbbd2eb1285728f566721c1e65b",
    ),
    (
        "46f5b22494bfeaa7f232cc8d054be68561af50230234d7d1d63d1d9abeca8da5",
        "7d56d1e08cb0ccb92baf069c18c49bb5a0dcd927eff8dcf75ca921ef7f3e6eeb",
    ),
    (
        "235fe40c443766ce7e18111c33862d66c3b33267efa50d50f9e8e5d252a40aaa",
        "3fbe66b9c9883d79e8407150e7c2a1c8680bee496c62fabe4619a72b3cabe90f",
    ),
]

# Changing the hash strands every cached alignment and every peer of another version.
KNOWN = "efefba2add15d7585b6d59116e8914e6f43408dabf2232443eefe1fbf5724a10"

# The points whose order divides 8, on the curve and on its twist (RFC 7748, 7).
LOW_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    P - 1,
]


def scalar(seed: int = 0) -> SecretScalar:
    return SecretScalar.draw(SeededEntropy(bytes([seed])))


def encoded(x: int) -> bytes:
    return x.to_bytes(32, "little")


def on_curve(x: int) -> bool:
    """Euler's criterion, written out: independent of the Jacobi symbol under test."""
    return pow(x**3 + 486662 * x**2 + x, (P - 1) // 2, P) == 1


def twist_point() -> bytes:
    return encoded(next(x for x in range(2, 100) if not on_curve(x)))


@pytest.mark.parametrize(("u", "x"), RFC_9380)
def test_the_map_gives_the_points_of_rfc_9380(u: str, x: str) -> None:
    assert elligator2(int(u, 16)) == encoded(int(x, 16))


@given(st.text(max_size=60))
def test_every_id_becomes_a_reduced_point_of_the_curve(text: str) -> None:
    x = int.from_bytes(hash_to_curve(text), "little")
    assert x < P
    assert on_curve(x)


def test_hashes_do_not_change_between_versions() -> None:
    assert hash_to_curve("001").hex() == KNOWN


def test_multiplying_is_x25519() -> None:
    private = X25519PrivateKey.from_private_bytes(bytes(range(32)))
    base = encoded(9)
    assert multiply([base], SecretScalar(bytes(range(32)))) == private.public_key().public_bytes_raw()


@given(st.text(max_size=20), st.integers(0, 200), st.integers(0, 200))
def test_scalars_commute(text: str, first: int, second: int) -> None:
    one, other = scalar(first), scalar(second)
    start = [hash_to_curve(text)]
    assert multiply(split_points(multiply(start, one)), other) == multiply(
        split_points(multiply(start, other)), one
    )


@pytest.mark.parametrize("x", LOW_ORDER)
def test_points_of_low_order_are_refused(x: int) -> None:
    with pytest.raises(RemoteProtocolError, match=r"low order|not a point"):
        _multiply_chunk(scalar(), encoded(x))


def test_a_point_on_the_twist_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="not a point of the curve"):
        check_points([hash_to_curve("ok"), twist_point()])


@pytest.mark.parametrize("x", [P, P + 9, 2**255 + 9, 2**256 - 1])
def test_a_coordinate_that_is_not_reduced_is_refused(x: int) -> None:
    with pytest.raises(RemoteProtocolError, match="not a reduced coordinate"):
        check_points([encoded(x)])


def test_what_honest_parties_send_passes_the_check() -> None:
    points = split_points(multiply([hash_to_curve(str(number)) for number in range(50)], scalar()))
    check_points(points)
    assert all(on_curve(int.from_bytes(point, "little")) for point in points)


def test_a_scalar_does_not_show_itself() -> None:
    secret = SecretScalar(b"\x41" * 32)
    assert "A" * 4 not in repr(secret)
    assert "41" not in repr(secret)
