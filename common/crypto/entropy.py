"""Where random numbers come from: an argument, never a global."""

from __future__ import annotations

import hashlib
import secrets
from typing import Protocol

from common.errors import LocalProtocolError

_SEED_BYTES = 32  # 256 bits: a child's seed is as hard to guess as any key here
_BLOCK_BITS = 256  # one SHA-256 output


class Entropy(Protocol):
    """A source of uniform bits that may be handed to a worker process."""

    def bits(self, count: int) -> int:
        """Return a uniform integer in [0, 2**count)."""
        ...

    def octets(self, count: int) -> bytes:
        """Return that many uniform bytes."""
        ...

    def split(self) -> Entropy:
        """Return a source for one worker whose output is independent of this one's and of its siblings'."""
        ...


class SystemEntropy:
    """The operating system's CSPRNG; the only source that a service uses."""

    def bits(self, count: int) -> int:
        """Return a uniform integer in [0, 2**count)."""
        return secrets.randbits(count)

    def octets(self, count: int) -> bytes:
        """Return that many uniform bytes."""
        return secrets.token_bytes(count)

    def split(self) -> SystemEntropy:
        """Return a source for one worker: every process asks the operating system by itself."""
        return SystemEntropy()


class SeededEntropy:
    """A reproducible stream for tests: SHA-256 of the seed and a block counter."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._counter = 0

    def bits(self, count: int) -> int:
        """Return the stream's next integer in [0, 2**count)."""
        stream = 0
        blocks = -(-count // _BLOCK_BITS)
        for _ in range(blocks):
            block = hashlib.sha256(self._seed + self._counter.to_bytes(8, "big")).digest()
            self._counter += 1
            stream = stream << _BLOCK_BITS | int.from_bytes(block, "big")
        return stream >> (blocks * _BLOCK_BITS - count)

    def octets(self, count: int) -> bytes:
        """Return the stream's next bytes."""
        return self.bits(8 * count).to_bytes(count, "little")

    def split(self) -> SeededEntropy:
        """Return a child seeded from this stream.

        A pickled copy would start where this stream stands, so that two workers drew the same noise.
        """
        return SeededEntropy(self.bits(8 * _SEED_BYTES).to_bytes(_SEED_BYTES, "big"))


def uniform_below(entropy: Entropy, bound: int) -> int:
    """Return a uniform integer in [0, bound), by rejection: reducing modulo `bound` would be biased."""
    if bound < 1:
        raise LocalProtocolError("a uniform integer needs a bound of at least 1")
    width = (bound - 1).bit_length()
    candidate = entropy.bits(width)
    while candidate >= bound:
        candidate = entropy.bits(width)
    return candidate


def uniform_masks(entropy: Entropy, count: int, modulus: int) -> list[int]:
    """Return `count` independent masks, each uniform on Z_modulus (PROTOCOLS rule 1.2.2).

    Whoever decrypts value + mask sees a uniform residue whatever the value is. A mask serves once.
    """
    return [uniform_below(entropy, modulus) for _ in range(count)]
