"""Microseconds an id for every curve and library that came into question (docs/decisions/0010-psi-curve.md).

What is not installed is left out: `pip install pynacl coincurve rbcl` for all of them.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.crypto.entropy import SystemEntropy
from common.crypto.psi_curve import SecretScalar, check_points, hash_to_curve, multiply

COUNT = 3000

Work = tuple[str, Callable[[Any], object], list[Any]]


def _ours() -> Iterator[Work]:
    ids = [f"customer-{number:09d}" for number in range(COUNT)]
    points = [hash_to_curve(one) for one in ids]
    scalar = SecretScalar.draw(SystemEntropy())
    yield "hash to the curve (BLAKE2b, Elligator 2)", hash_to_curve, ids
    yield "check a peer's point (Jacobi symbol)", lambda point: check_points([point]), points
    exchange, parse = scalar.multiplier().exchange, X25519PublicKey.from_public_bytes
    yield "X25519 by cryptography", lambda point: exchange(parse(point)), points
    # A check of the benchmark itself: what is timed gives what the product computes.
    if exchange(parse(points[0])) != multiply(points[:1], scalar):
        raise SystemExit("the timed multiplication differs from the product's")


def _p256() -> Iterator[Work]:
    private = ec.generate_private_key(ec.SECP256R1())
    encoded = [
        ec.generate_private_key(ec.SECP256R1())
        .public_key()
        .public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        for _ in range(300)
    ]
    parse = ec.EllipticCurvePublicKey.from_encoded_point
    yield (
        "P-256 by cryptography",
        lambda point: private.exchange(ec.ECDH(), parse(private.curve, point)),
        encoded,
    )


def _pynacl(module: Any) -> Iterator[Work]:
    points = [X25519PrivateKey.generate().public_key().public_bytes_raw() for _ in range(COUNT)]
    secret = os.urandom(32)
    yield "X25519 by PyNaCl (libsodium)", lambda point: module.crypto_scalarmult(secret, point), points


def _coincurve(module: Any) -> Iterator[Work]:
    points = [module.PrivateKey().public_key.format() for _ in range(COUNT)]
    secret = os.urandom(32)
    yield (
        "secp256k1 by coincurve (not constant time)",
        lambda point: module.PublicKey(point).multiply(secret).format(),
        points,
    )


def _rbcl(module: Any) -> Iterator[Work]:
    points = [module.crypto_core_ristretto255_random() for _ in range(COUNT)]
    hashes = [os.urandom(64) for _ in range(COUNT)]
    scalar = module.crypto_core_ristretto255_scalar_random()
    yield "ristretto255 by rbcl, hash", module.crypto_core_ristretto255_from_hash, hashes
    yield (
        "ristretto255 by rbcl, multiply",
        lambda point: module.crypto_scalarmult_ristretto255(scalar, point),
        points,
    )


_OPTIONAL = {"nacl.bindings": _pynacl, "coincurve": _coincurve, "rbcl": _rbcl}


def measured() -> Iterator[tuple[str, float]]:
    """Yield a primitive and its microseconds of this thread's own time, so that other programs count less."""
    works = [*_ours(), *_p256()]
    for name, works_of in _OPTIONAL.items():
        try:
            works += works_of(importlib.import_module(name))
        except ImportError:
            continue
    for name, function, inputs in works:
        best = min(_seconds(function, inputs) for _ in range(3))
        yield name, best / len(inputs) * 1e6


def _seconds(function: Callable[[Any], object], inputs: list[Any]) -> float:
    start = time.thread_time()
    for one in inputs:
        function(one)
    return time.thread_time() - start
