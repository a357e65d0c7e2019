"""The seam: vectors of integers in, vectors of ciphertexts out, and what may leave a party as a type.

    plaintexts ──encrypt──▶ SealedVector ──opened──▶ CipherVector ──┐ add, transposed_product
                                 ▲                        ▲         │
                                 └──────────seal──────────┴─────────┘

A ciphertext that was computed is a known function of ciphertexts its readers may have made themselves:
dividing by those gives the plaintext that was added (PROTOCOLS rule 1.2.1). So a CipherVector has no bytes
to send; only a Cipher turns it into a SealedVector, by multiplying every entry with fresh noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

import gmpy2
from gmpy2 import mpz
from numpy.typing import NDArray

from common.crypto.entropy import Entropy
from common.crypto.fanout import in_order, worker_count
from common.crypto.multiexp import transposed_powers
from common.crypto.noise import noise_table
from common.crypto.noise_stock import NoiseStock
from common.crypto.paillier import PublicKey
from common.crypto.straus import MOST_BASES, few_base_powers
from common.errors import LocalProtocolError, RemoteProtocolError

# About 12 ms of work at 2048 bits: long against the cost of shipping it, short against a round.
_CHUNK = 32
# With noise from the stock an encryption is one product or two: 2 ms.
_STOCKED_CHUNK = 256
# And so few are made by whoever asks, half a millisecond: to ship them to a worker and back takes as long.
_AT_HAND = 80
# Powers that are kept at most, 8 MB at 2048 bits.
_MOST_STOCKED = 16_384


class CipherVector:
    """Ciphertexts to compute with; they cannot be sent.

    Whoever builds one vouches for its content: `parse_ciphertexts` for what came from outside.
    """

    __slots__ = ("_content", "key")

    def __init__(self, key: PublicKey, content: bytes) -> None:
        if len(content) % key.ciphertext_bytes:
            raise LocalProtocolError("a ciphertext vector is not made of whole ciphertexts")
        self.key = key
        self._content = content

    @classmethod
    def of(cls, key: PublicKey, ciphertexts: Iterable[int]) -> CipherVector:
        """Return the vector of these integers, each in [1, N²)."""
        width = key.ciphertext_bytes
        return cls(key, b"".join(int(ciphertext).to_bytes(width, "big") for ciphertext in ciphertexts))

    @classmethod
    def joined(cls, key: PublicKey, parts: Iterable[CipherVector]) -> CipherVector:
        """Return the parts one after another, e.g. the chunks of a stream."""
        return cls(key, b"".join(same_key(key, part)._content for part in parts))

    def __len__(self) -> int:
        return len(self._content) // self.key.ciphertext_bytes

    def __getitem__(self, rows: slice) -> CipherVector:
        if not isinstance(rows, slice):
            # Without this, bytes(vector) and iteration would fall back on indices from 0.
            raise TypeError("a ciphertext vector is cut by slices")
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise LocalProtocolError("a ciphertext vector is cut into contiguous pieces only")
        width = self.key.ciphertext_bytes
        return CipherVector(self.key, self._content[start * width : max(start, stop) * width])

    def __repr__(self) -> str:
        return f"CipherVector({len(self)} ciphertexts)"

    def ciphertexts(self) -> list[int]:
        """Return the ciphertexts as integers, to be computed with or decrypted; not to be sent."""
        width = self.key.ciphertext_bytes
        view = memoryview(self._content)
        return [int.from_bytes(view[at : at + width], "big") for at in range(0, len(view), width)]


class _Seal:
    """The right to declare ciphertexts safe to send; held by the implementations of Cipher alone."""

    __slots__ = ()


SEAL = _Seal()


class SealedVector:
    """Ciphertexts under fresh noise: safe to send to anybody who does not hold the private key."""

    __slots__ = ("_vector",)

    def __init__(self, vector: CipherVector, seal: _Seal) -> None:
        """Declare a vector re-randomised; possible only with the seal that ciphers hold."""
        if seal is not SEAL:
            raise LocalProtocolError("only a cipher can seal ciphertexts: use Cipher.seal")
        self._vector = vector

    def __len__(self) -> int:
        return len(self._vector)

    def __repr__(self) -> str:
        return f"SealedVector({len(self)} ciphertexts)"

    def __reduce__(self) -> tuple[Any, ...]:
        raise LocalProtocolError("a sealed vector travels as bytes, never as a pickle")

    @property
    def key(self) -> PublicKey:
        """The key the ciphertexts are under."""
        return self._vector.key

    def opened(self) -> CipherVector:
        """Return the same ciphertexts to compute with."""
        return self._vector

    def to_bytes(self) -> bytes:
        """Return the ciphertexts as they travel: big-endian, each as wide as N², one after another."""
        return self._vector._content


def parse_ciphertexts(data: bytes, key: PublicKey, expected: int | None) -> CipherVector:
    """Return what a peer sent as a vector; the one place where ciphertexts are checked.

    Args:
        data: Big-endian ciphertexts of the key's width, one after another.
        key: The job's public key.
        expected: How many there must be; None takes any number but none.

    Raises:
        RemoteProtocolError: Torn, too many or too few, out of (0, N²), or not coprime to N.
    """
    count, torn = divmod(len(data), key.ciphertext_bytes)
    if torn:
        raise RemoteProtocolError("the last ciphertext is not whole")
    if expected is not None and count != expected:
        raise RemoteProtocolError(f"{count} ciphertexts came where {expected} were agreed")
    if expected is None and not count:
        # A stream of such messages would never end, and each of them would be kept.
        raise RemoteProtocolError("a message came without ciphertexts")
    vector = CipherVector(key, bytes(data))
    modulus, limit, product = mpz(key.modulus), mpz(key.modulus_squared), mpz(1)
    for ciphertext in map(mpz, vector.ciphertexts()):
        if ciphertext >= limit:
            raise RemoteProtocolError("a ciphertext is not below N squared")
        product = product * ciphertext % modulus
    # The product shares a factor with N if and only if one of its factors does; 0 makes it 0.
    if gmpy2.gcd(product, modulus) != 1:
        raise RemoteProtocolError("a ciphertext is zero or shares a factor with N")
    return vector


class Cipher(Protocol):
    """Vector arithmetic under one public key. Plaintexts are integers, taken modulo N."""

    @property
    def key(self) -> PublicKey:
        """The public key."""
        ...

    def encrypt(self, plain: Sequence[int]) -> SealedVector:
        """Return [[plain]] under fresh noise."""
        ...

    def seal(self, vector: CipherVector, addends: Sequence[int]) -> SealedVector:
        """Return [[vector + addends]] under fresh noise; the addends may be zero, or masks."""
        ...

    def add(self, left: CipherVector, right: CipherVector) -> CipherVector:
        """Return [[left + right]]."""
        ...

    def transposed_product(self, matrix: NDArray[Any], vector: CipherVector) -> CipherVector:
        """Return matrixᵀ[[vector]] for an integer matrix (n, d): d ciphertexts, not safe to send."""
        ...


class PaillierCipher:
    """The cipher of the product: GMP arithmetic, table noise, bucket products, spread over an executor."""

    def __init__(self, key: PublicKey, executor: Executor, entropy: Entropy) -> None:
        self.key = key
        self._executor = executor
        self._entropy = entropy
        self._stock = NoiseStock()

    def encrypt(self, plain: Sequence[int]) -> SealedVector:
        """Return [[plain]] under fresh noise."""
        with self._stock.work():
            return self._noised(None, plain)

    def seal(self, vector: CipherVector, addends: Sequence[int]) -> SealedVector:
        """Return [[vector + addends]] under fresh noise."""
        same_length(len(same_key(self.key, vector)), len(addends))
        with self._stock.work():
            return self._noised(vector, addends)

    def keep_stocked(self, limit: int) -> None:
        """Prepare noise in all idle moments, up to `limit` powers, until `finish_stock`.

        For a thread of its own. Other work on this cipher waits for a chunk at each worker at most.
        """
        at_once = _CHUNK * worker_count(self._executor)
        while room := min(at_once, self._stock.wait_for_room(min(limit, _MOST_STOCKED))):
            counts = (min(_CHUNK, room - start) for start in range(0, room, _CHUNK))
            tasks = ((self.key, self._entropy.split(), count) for count in counts)
            for powers in in_order(self._executor, _fresh_powers, tasks):
                self._stock.put(powers)

    def finish_stock(self) -> None:
        """Prepare no more noise; what is there may still be used."""
        self._stock.finish()

    def add(self, left: CipherVector, right: CipherVector) -> CipherVector:
        """Return [[left + right]]."""
        same_length(len(same_key(self.key, left)), len(same_key(self.key, right)))
        modulus = mpz(self.key.modulus_squared)
        pairs = zip(left.ciphertexts(), right.ciphertexts(), strict=True)
        return CipherVector.of(self.key, (mpz(one) * other % modulus for one, other in pairs))

    def transposed_product(self, matrix: NDArray[Any], vector: CipherVector) -> CipherVector:
        """Return matrixᵀ[[vector]], a multi-exponentiation for each column."""
        if matrix.ndim != 2:
            raise LocalProtocolError("a transposed product needs a matrix of rows and columns")
        same_length(len(same_key(self.key, vector)), matrix.shape[0])
        width = self.key.ciphertext_bytes
        method = few_base_powers if len(vector) <= MOST_BASES else transposed_powers
        with self._stock.work():
            powers = method(
                self._executor, matrix, vector._content, self.key.modulus_squared.to_bytes(width, "big")
            )
        return CipherVector.of(self.key, powers)

    def _noised(self, vector: CipherVector | None, addends: Sequence[int]) -> SealedVector:
        stocked = self._stock.take(len(addends))
        tasks = self._noised_tasks(vector, addends, stocked)
        at_hand = [_noised_chunk(next(tasks))] if 0 < len(stocked) <= _AT_HAND else []
        content = b"".join([*at_hand, *in_order(self._executor, _noised_chunk, tasks)])
        return SealedVector(CipherVector(self.key, content), SEAL)

    def _noised_tasks(
        self, vector: CipherVector | None, addends: Sequence[int], stocked: list[bytes]
    ) -> Iterator[_NoiseTask]:
        """Yield the work: first with noise from the stock, as far as that goes."""
        width, start = self.key.ciphertext_bytes, 0
        while start < len(addends):
            stop = start + _CHUNK if start >= len(stocked) else min(start + _STOCKED_CHUNK, len(stocked))
            yield _NoiseTask(
                self.key,
                [int(addend) for addend in addends[start:stop]],
                None if vector is None else vector._content[start * width : stop * width],
                stocked[start:stop] or self._entropy.split(),
            )
            start = stop


@dataclass(frozen=True, slots=True, repr=False)
class _NoiseTask:
    """Plaintexts to be put under noise, and added to ciphertexts if there are any."""

    key: PublicKey
    addends: list[int]
    ciphertexts: bytes | None
    noise: list[bytes] | Entropy


def _noised_chunk(task: _NoiseTask) -> bytes:
    """Return Enc(addend)·ciphertext for every entry of a chunk, each under its own noise."""
    key, content = task.key, bytearray()
    modulus, squared, width = mpz(key.modulus), mpz(key.modulus_squared), key.ciphertext_bytes
    for row, (addend, noise) in enumerate(zip(task.addends, _powers_of(task), strict=True)):
        # (1 + m·N)·h = h + N·(m·h mod N): half as long a product as it looks.
        fresh = noise + modulus * (addend * noise % modulus)
        if task.ciphertexts is not None:
            fresh *= mpz.from_bytes(task.ciphertexts[row * width : (row + 1) * width], "big")
        content += (fresh % squared).to_bytes(width, "big")
    return bytes(content)


def _powers_of(task: _NoiseTask) -> Iterable[mpz]:
    if isinstance(task.noise, list):
        return [mpz.from_bytes(power, "big") for power in task.noise]
    table = noise_table(task.key)
    return [table.draw(task.noise) for _ in task.addends]


def _fresh_powers(task: tuple[PublicKey, Entropy, int]) -> list[bytes]:
    """Return so many powers of the key's noise generator."""
    key, entropy, count = task
    table = noise_table(key)
    return [table.draw(entropy).to_bytes(key.ciphertext_bytes, "big") for _ in range(count)]


def same_key(key: PublicKey, vector: CipherVector) -> CipherVector:
    """Return the vector if it is under this key.

    Raises:
        LocalProtocolError: It is under another key.
    """
    if vector.key != key:
        raise LocalProtocolError("a ciphertext vector is under another key than the cipher's")
    return vector


def same_length(left: int, right: int) -> None:
    """Check that two vectors fit each other.

    Raises:
        LocalProtocolError: Their lengths differ.
    """
    if left != right:
        raise LocalProtocolError(f"vectors of {left} and {right} entries do not fit each other")
