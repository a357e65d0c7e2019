"""Keys and executors for the crypto floor. The primes are fixed, so that every run does the same."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from common.crypto.cipher import PaillierCipher
from common.crypto.entropy import SeededEntropy
from common.crypto.private_key import PrivateKey

P_256 = 0xEBAE99979CB45071561BBA2838B0A4EF
Q_256 = 0xD915F40201C7E5DDED8C91C73B92E85B
P_512 = 0xCCF3624343BA09E7D0399EBF3197FA3D3C2356C8925FA5B7CE4613D578F655A3
Q_512 = 0xE7E2B0A8593F58152A1B1CFEC91C2032E0EE12D7E91287A84B8EC41F6F1513A3


@pytest.fixture(scope="session")
def private_key() -> PrivateKey:
    """A key of 256 bits."""
    return PrivateKey(P_256, Q_256, SeededEntropy(b"256"))


@pytest.fixture(scope="session")
def larger_key() -> PrivateKey:
    """A key of 512 bits."""
    return PrivateKey(P_512, Q_512, SeededEntropy(b"512"))


@pytest.fixture(scope="session")
def threads() -> Iterator[Executor]:
    """One thread: an executor without processes."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture(scope="session")
def processes() -> Iterator[Executor]:
    """Two worker processes."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


@pytest.fixture
def cipher(private_key: PrivateKey, threads: Executor) -> PaillierCipher:
    """The product's cipher under the 256-bit key."""
    return PaillierCipher(private_key.public, threads, SeededEntropy(b"cipher"))
