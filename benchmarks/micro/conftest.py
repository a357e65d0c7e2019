"""What the micro benchmarks share: one key of the size in use, this library and phe side by side.

    pytest benchmarks/micro --benchmark-timer=time.process_time

Everything runs in this process: the numbers are for one core. `--key-bits 3072` measures another size.
"""

from __future__ import annotations

import phe
import pytest

from benchmarks.micro.side_by_side import Bench
from common.crypto.cipher import PaillierCipher
from common.crypto.entropy import SystemEntropy
from common.crypto.phe_bridge import PheCipher, generate_primes
from common.crypto.private_key import PrivateKey
from common.runtime.compute import InProcessExecutor


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the size of the key."""
    parser.addoption("--key-bits", type=int, default=2048, help="size of the benchmarks' key")


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest) -> Bench:
    """Fresh primes, and a noise table that is built before anything is timed."""
    p, q = generate_primes(request.config.getoption("--key-bits"))
    private = PrivateKey(p, q, SystemEntropy())
    public = phe.PaillierPublicKey(p * q)
    ours = PaillierCipher(private.public, InProcessExecutor(), SystemEntropy())
    reference = PheCipher(private.public, InProcessExecutor(), SystemEntropy())
    ours.encrypt([0])
    return Bench(private, public, phe.PaillierPrivateKey(public, p, q), ours, reference)
