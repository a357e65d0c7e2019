"""Measures one library in its own interpreter: `python measure.py LIBRARY BITS ROWS COLUMNS REPEATS`.

Stands alone, because it also runs in environments without this project. Prints one JSON object: CPU
microseconds of one core for each operation, the fastest of the repeats. Every result is decrypted and
compared first.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Protocol

EXPONENT_BITS = 30
COUNT = 24


class Library(Protocol):
    """What is asked of a library; a kernel is X'[[d]] for integers, a column at a time."""

    def encrypt(self, values: list[int]) -> Any: ...

    def rerandomise(self, vector: Any) -> Any: ...

    def decrypt(self, vector: Any) -> list[int]: ...

    def kernel(self, columns: list[list[int]], vector: Any) -> Any: ...


class Colonnade:
    noise: Literal["proven", "short"] = "proven"

    def __init__(self, bits: int) -> None:
        from common.crypto.cipher import PaillierCipher
        from common.crypto.entropy import SystemEntropy
        from common.crypto.private_key import PrivateKey
        from common.runtime.compute import InProcessExecutor

        self._private = PrivateKey.generate(bits, SystemEntropy())
        key = replace(self._private.public, noise=self.noise)
        self._cipher = PaillierCipher(key, InProcessExecutor(), SystemEntropy())
        self._cipher.encrypt([0])  # builds the table of noise, as a service does once a job

    def encrypt(self, values: list[int]) -> Any:
        return self._cipher.encrypt(values).opened()

    def rerandomise(self, vector: Any) -> Any:
        return self._cipher.seal(vector, [0] * len(vector)).opened()

    def decrypt(self, vector: Any) -> list[int]:
        modulus = self._private.public.modulus
        residues = self._private.decrypt_all(vector.ciphertexts())
        return [one - modulus if 2 * one > modulus else one for one in residues]

    def kernel(self, columns: list[list[int]], vector: Any) -> Any:
        import numpy as np

        return self._cipher.transposed_product(np.array(columns).T, vector)


class ColonnadeWithShortNoise(Colonnade):
    noise = "short"


class Phe:
    def __init__(self, bits: int) -> None:
        from phe import generate_paillier_keypair

        self._public, self._private = generate_paillier_keypair(n_length=bits)

    def encrypt(self, values: list[int]) -> Any:
        return [self._public.encrypt(value) for value in values]

    def rerandomise(self, vector: Any) -> Any:
        for one in vector:
            one.obfuscate()
        return vector

    def decrypt(self, vector: Any) -> list[int]:
        return [self._private.decrypt(one) for one in vector]

    def kernel(self, columns: list[list[int]], vector: Any) -> Any:
        return [_dot(column, vector) for column in columns]


class PyPaillier:
    def __init__(self, bits: int) -> None:
        import paillier

        self._library = paillier
        self._public, self._private = paillier.generate_keypair(bits)

    def encrypt(self, values: list[int]) -> Any:
        return [bytes(one) for one in self._library.encrypt_integers(self._public, values)]

    def rerandomise(self, vector: Any) -> Any:
        return [bytes(one) for one in self._library.rerandomize(self._public, vector)]

    def decrypt(self, vector: Any) -> list[int]:
        return [int(one) for one in self._library.decrypt_many(self._private, vector)]

    def kernel(self, columns: list[list[int]], vector: Any) -> Any:
        multiply, add = self._library.multiply_integers_public, self._library.add_many
        return [
            bytes(add(self._public, [bytes(one) for one in multiply(self._public, vector, column)]))
            for column in columns
        ]


class RustPaillier:
    def __init__(self, bits: int) -> None:
        import numpy
        import rust_paillier

        self._numpy = numpy
        self._private, self._public, *_ = _ordered(rust_paillier.keygen(bits))

    def encrypt(self, values: list[int]) -> Any:
        return self._public.encrypt_i64(self._numpy.array(values, dtype="int64").reshape(-1, 1))

    def decrypt(self, vector: Any) -> list[int]:
        return [int(one) for one in self._private.decrypt_i64(vector).flat]

    def rerandomise(self, vector: Any) -> Any:
        raise NotImplementedError

    def kernel(self, columns: list[list[int]], vector: Any) -> Any:
        return vector.rmatmul_plaintext_ix2_i64(self._numpy.array(columns, dtype="int64"))


class Heu:
    def __init__(self, bits: int) -> None:
        from heu import phe

        kit = phe.setup(phe.SchemaType.ZPaillier, bits)
        self._encryptor, self._decryptor, self._evaluator = kit.encryptor(), kit.decryptor(), kit.evaluator()
        self._zero = phe.Plaintext(phe.SchemaType.ZPaillier, 0)
        self._plain = lambda value: phe.Plaintext(phe.SchemaType.ZPaillier, value)

    def encrypt(self, values: list[int]) -> Any:
        return [self._encryptor.encrypt_raw(value) for value in values]

    def rerandomise(self, vector: Any) -> Any:
        return [self._evaluator.add(one, self._encryptor.encrypt_raw(0)) for one in vector]

    def decrypt(self, vector: Any) -> list[int]:
        return [self._decryptor.decrypt_raw(one) for one in vector]

    def kernel(self, columns: list[list[int]], vector: Any) -> Any:
        sums = []
        for column in columns:
            total = None
            for one, exponent in zip(vector, column, strict=True):
                term = self._evaluator.mul(one, self._plain(exponent))
                total = term if total is None else self._evaluator.add(total, term)
            sums.append(total)
        return sums


LIBRARIES: dict[str, Callable[[int], Library]] = {
    "colonnade": Colonnade,
    "colonnade_short": ColonnadeWithShortNoise,
    "phe": Phe,
    "pypaillier": PyPaillier,
    "rust_paillier": RustPaillier,
    "heu": Heu,
}


def main(arguments: list[str]) -> None:
    """Check and measure every operation of one library."""
    name, (bits, rows, columns, repeats) = arguments[0], map(int, arguments[1:5])
    library = LIBRARIES[name](bits)
    rng = random.Random(5)
    values = [rng.randrange(-(2**31), 2**31) for _ in range(COUNT)]
    vector = library.encrypt(values)
    _check(library.decrypt(vector) == values, "decryption")
    found = {
        "encrypt": _fastest(lambda: library.encrypt(values), repeats) / COUNT,
        "decrypt": _fastest(lambda: library.decrypt(vector), repeats) / COUNT,
    }
    try:
        _check(library.decrypt(library.rerandomise(vector)) == values, "re-randomising")
        found["rerandomise"] = _fastest(lambda: library.rerandomise(vector), repeats) / COUNT
    except NotImplementedError:
        pass  # The library has no such operation.
    limit = 1 << EXPONENT_BITS
    matrix = [[rng.randrange(-limit + 1, limit) for _ in range(rows)] for _ in range(columns)]
    plain = [rng.randrange(-(2**20), 2**20) for _ in range(rows)]
    many = library.encrypt(plain)
    wanted = [sum(x * d for x, d in zip(column, plain, strict=True)) for column in matrix]
    _check(library.decrypt(library.kernel(matrix, many)) == wanted, "X'[[d]]")
    found["kernel"] = _fastest(lambda: library.kernel(matrix, many), max(1, repeats - 1)) / (rows * columns)
    print(json.dumps({"library": name, "bits": bits, "rows": rows, "columns": columns, "us": found}))


def _fastest(work: Callable[[], object], repeats: int) -> float:
    """Return CPU microseconds, of all threads together: other programs can only make one slower."""
    best = float("inf")
    for _ in range(repeats):
        start_s = time.process_time()
        work()
        best = min(best, time.process_time() - start_s)
    return round(best * 1e6, 3)


def _check(right: bool, what: str) -> None:
    if not right:
        raise SystemExit(f"{what} gave a wrong result")


def _dot(column: list[int], vector: list[Any]) -> Any:
    total = vector[0] * column[0]
    for one, exponent in zip(vector[1:], column[1:], strict=True):
        total = total + one * exponent
    return total


def _ordered(pair: tuple[Any, ...]) -> list[Any]:
    """Return (private, public), in whatever order the library has them."""
    return sorted(pair, key=lambda one: hasattr(one, "encrypt_i64"))


if __name__ == "__main__":
    main(sys.argv[1:])
