"""Noise prepared in advance serves once, and changes nothing but the time of the work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from common.crypto.cipher import PaillierCipher
from common.crypto.entropy import SystemEntropy
from common.crypto.noise_stock import NoiseStock
from common.crypto.private_key import PrivateKey


@pytest.fixture
def stocked(private_key: PrivateKey, threads: Executor) -> Iterator[PaillierCipher]:
    """A cipher whose stock is being filled by another thread."""
    cipher = PaillierCipher(private_key.public, threads, SystemEntropy())
    filling = threading.Thread(target=cipher.keep_stocked, args=(50,))
    filling.start()
    yield cipher
    cipher.finish_stock()
    filling.join()


def wait_until_full(cipher: PaillierCipher, powers: int) -> None:
    with cipher._stock._change:
        assert cipher._stock._change.wait_for(lambda: len(cipher._stock) >= powers, timeout=30)


def test_no_power_is_ever_handed_out_twice_however_many_ask_at_the_same_time(
    stocked: PaillierCipher, private_key: PrivateKey
) -> None:
    with ThreadPoolExecutor(4) as askers:
        sealed = list(askers.map(lambda _: stocked.encrypt([0] * 7), range(60)))
    # An encryption of zero is its noise.
    noise = [ciphertext for one in sealed for ciphertext in one.opened().ciphertexts()]
    assert private_key.decrypt_all(noise) == (0,) * len(noise)
    assert len({ciphertext % stocked.key.modulus for ciphertext in noise}) == 420


def test_stocked_and_fresh_noise_go_into_one_vector(stocked: PaillierCipher, private_key: PrivateKey) -> None:
    wait_until_full(stocked, 50)
    plain = list(range(130))
    vector = stocked.encrypt(plain).opened()
    sealed = stocked.seal(vector, plain[::-1])
    assert private_key.decrypt_all(vector.ciphertexts()) == tuple(plain)
    assert private_key.decrypt_all(sealed.opened().ciphertexts()) == (129,) * 130


def test_the_stock_is_bounded_and_filled_again(stocked: PaillierCipher) -> None:
    for _ in range(3):
        wait_until_full(stocked, 50)
        assert len(stocked._stock) == 50
        stocked.encrypt([1] * 20)


def test_whoever_fills_waits_for_those_who_work_and_ends_when_finished() -> None:
    stock, rooms = NoiseStock(), []
    with stock.work():
        filling = threading.Thread(target=lambda: rooms.append(stock.wait_for_room(5)))
        filling.start()
        stock.put([b"1", b"2"])
        assert filling.is_alive()
    filling.join()
    assert rooms == [3]
    assert stock.take(9) == [b"1", b"2"]
    stock.finish()
    assert stock.wait_for_room(5) == 0


def test_a_stock_shows_no_power(stocked: PaillierCipher) -> None:
    wait_until_full(stocked, 50)
    assert repr(stocked._stock) == "NoiseStock(50 powers)"
