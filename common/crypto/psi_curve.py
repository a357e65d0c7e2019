"""Ids as points of Curve25519: hash to the curve, multiply by a secret scalar, check what a peer sent.

A point is its x coordinate, 32 bytes little-endian, as in RFC 7748; P and -P are one point here.

Hashing. H(id) = Elligator2(BLAKE2b-512(id) mod p), the map of RFC 9380 6.7.1 without its y. Every output
lies on the curve and none on its twist: were an id's point on either by chance, everybody who sees the
point under any scalar could tell which, a bit about the id. The map reaches a large part of the curve, not
all of it; that is enough here, because a simulator can draw a random point and accept it in proportion to
its preimages. The hash is the same in every job: what separates jobs is a fresh secret scalar.

Multiplying. X25519 clamps its scalar: a multiple of 8 between 2^254 and 2^255. So a product always lies in
the subgroup of prime order whatever the cofactor part of the point was, no scalar is 0 there, and products
commute: [a][b]P = [b][a]P. The ladder runs in constant time, inside OpenSSL.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import gmpy2
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from common.crypto.entropy import Entropy
from common.errors import LocalProtocolError, RemoteProtocolError

POINT_BYTES = 32

# The label keeps these hashes apart from any other use of BLAKE2b on the same ids.
_LABEL = b"colonnade psi v1"
_HASH_BYTES = 64  # twice the field's width, so that reducing modulo p leaves a bias below 2^-250

# y^2 = x^3 + A x^2 + x over the integers modulo p = 2^255 - 19 (RFC 7748, 4.1).
_P = gmpy2.mpz(2**255 - 19)
_A = gmpy2.mpz(486662)


@dataclass(frozen=True, slots=True)
class SecretScalar:
    """One party's secret for one alignment; whoever has it can test guessed ids against its points."""

    _bytes: bytes = field(repr=False)

    @classmethod
    def draw(cls, entropy: Entropy) -> SecretScalar:
        """Return a fresh scalar; X25519 clamps it when it is used."""
        return cls(entropy.bits(8 * POINT_BYTES).to_bytes(POINT_BYTES, "little"))

    def multiplier(self) -> X25519PrivateKey:
        """Return the scalar as `cryptography` uses it."""
        return X25519PrivateKey.from_private_bytes(self._bytes)


def hash_to_curve(text: str) -> bytes:
    """Return H(id)."""
    digest = hashlib.blake2b(text.encode(), digest_size=_HASH_BYTES, person=_LABEL).digest()
    return elligator2(int.from_bytes(digest, "little"))


def elligator2(element: int) -> bytes:
    """Return the point that Elligator 2 gives a field element (RFC 9380 6.7.1, Z = 2)."""
    # 1 + 2 r^2 is never 0: -1/2 is no square modulo p. Neither is u, nor u^2 + A u + 1.
    u = -_A * gmpy2.invert(1 + 2 * gmpy2.mpz(element) ** 2, _P) % _P
    x = u if _on_curve(u) else (-u - _A) % _P
    return int(x).to_bytes(POINT_BYTES, "little")


def check_points(points: Sequence[bytes]) -> None:
    """Refuse what no honest party sends: a number that is not reduced, or a point beside the curve.

    Raises:
        RemoteProtocolError: Says what is wrong, without the point.
    """
    for point in points:
        x = gmpy2.mpz(int.from_bytes(point, "little"))
        if x >= _P:
            raise RemoteProtocolError("a blinded id is not a reduced coordinate")
        if not _on_curve(x):
            raise RemoteProtocolError("a blinded id is not a point of the curve")


def multiply(points: Sequence[bytes], scalar: SecretScalar) -> bytes:
    """Return [scalar]P of every point, one after another.

    Raises:
        RemoteProtocolError: A point is of low order, so that every scalar makes the same of it.
    """
    exchange, parse = scalar.multiplier().exchange, X25519PublicKey.from_public_bytes
    try:
        return b"".join([exchange(parse(point)) for point in points])
    except ValueError as exc:
        raise RemoteProtocolError("a blinded id is a point of low order") from exc


def split_points(data: bytes) -> list[bytes]:
    """Return the points of a byte string."""
    if len(data) % POINT_BYTES:
        raise LocalProtocolError("points have 32 bytes each")
    return [data[at : at + POINT_BYTES] for at in range(0, len(data), POINT_BYTES)]


def _on_curve(x: gmpy2.mpz) -> bool:
    # A point with this x exists where x^3 + A x^2 + x is a square; 0 itself is of order 2.
    return bool(gmpy2.jacobi(((x + _A) * x + 1) * x, _P) == 1)
