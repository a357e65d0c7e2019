"""How fast this machine computes: a second of measurements, kept until the machine or the library changes."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import secrets
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path

import gmpy2
from gmpy2 import mpz

from common.crypto.entropy import SystemEntropy
from common.crypto.noise import NoiseTable
from common.crypto.paillier import PublicKey
from common.runtime.compute import available_cores
from common.runtime.state import write_atomically

log = logging.getLogger("vfl.runtime")

FILE_NAME = "calibration.json"
# Of each kind of operation; the fastest of three such groups counts, as other programs can only slow one.
_REPEATS = 3
_PRODUCTS = 400
_POWERS = 30
_DECRYPTIONS = 2
_SPIN_S = 0.08
_SPINS = 3


@dataclass(frozen=True, slots=True)
class Calibration:
    """Seconds of one core for each operation, at one length of key.

    Attributes:
        key_bits: Length of N.
        product_s: A product modulo N², in a chain with operands that differ.
        noise_s: A power of the noise generator from its table.
        table_s: Building that table.
        decryption_s: Of one ciphertext.
    """

    key_bits: int
    product_s: float
    noise_s: float
    table_s: float
    decryption_s: float


_MEASURED = tuple(one.name for one in fields(Calibration) if one.name != "key_bits")


def calibration(key_bits: int, folder: Path) -> Calibration:
    """Return what is kept in the folder for this machine and this length of key, or measure and keep it."""
    path, entry = folder / FILE_NAME, f"{_fingerprint()}/{key_bits}"
    kept = _read(path)
    if entry in kept:
        with suppress(TypeError, ValueError, KeyError):
            return Calibration(key_bits, *(float(kept[entry][name]) for name in _MEASURED))
    measured = measure(key_bits)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(kept | {entry: asdict(measured)}, indent=2).encode())
    except OSError as exc:
        log.info("the calibration could not be kept (%s); it is measured again next time", type(exc).__name__)
    return measured


def cache_folder(state: Path | None = None) -> Path:
    """Return where the calibration is kept: the user's cache, which all parties of a machine share.

    Args:
        state: A party's state, taken instead when the user has no home that can be written to.
    """
    root = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(root) if root else Path.home() / ".cache") / "colonnade"
    nearest = next(one for one in (folder, *folder.parents) if one.exists())
    return folder if state is None or os.access(nearest, os.W_OK) else state


def measure(key_bits: int) -> Calibration:
    """Measure every operation; about a second at 2048 bits. No secret is involved: any odd number will do."""
    modulus = mpz(secrets.randbits(key_bits) | 1 << (key_bits - 1) | 1)
    squared = modulus * modulus
    factors = [mpz(secrets.randbits(2 * key_bits)) % squared for _ in range(_PRODUCTS)]
    start_s = time.thread_time()
    # A unit for certain: 4 and an odd number share no factor.
    table = NoiseTable(PublicKey(int(modulus), 4 ** (key_bits // 2)))
    table_s = time.thread_time() - start_s
    entropy = SystemEntropy()
    exponent = mpz(secrets.randbits(key_bits // 2) | 1 << (key_bits // 2 - 1))
    bases = factors[:_DECRYPTIONS]

    def products() -> None:
        product = factors[0]
        for factor in factors:
            product = product * factor % squared

    return Calibration(
        key_bits,
        _fastest(products) / _PRODUCTS,
        _fastest(lambda: [table.draw(entropy) for _ in range(_POWERS)]) / _POWERS,
        table_s,
        # Modulo p² and modulo q², numbers of the key's length each.
        2 * _fastest(lambda: gmpy2.powmod_base_list(bases, exponent, modulus)) / _DECRYPTIONS,
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to compute with at this moment.

    Attributes:
        cores: That this process may use.
        others: How many other processes want to compute just now.
    """

    cores: int
    others: float

    def share(self, processes: float) -> float:
        """Return how many cores so many processes of ours get: all of them, or a fair share."""
        if processes + self.others <= self.cores:
            return min(processes, float(self.cores))
        return min(processes, self.cores * processes / (processes + self.others))


def this_machine() -> Machine:
    """Look how much of the machine is ours, by keeping all of its cores busy for a few blinks."""
    cores = available_cores()
    ours = statistics.median(_ours(cores) for _ in range(_SPINS))
    # A fair share of `cores` threads among them and m others is cores²/(cores + m).
    return Machine(cores, max(0.0, cores * (cores / max(ours, 0.05) - 1)))


def _ours(cores: int) -> float:
    """Return how many cores so many busy threads get."""
    modulus, base, exponent = (mpz(1) << 4096) + 1, mpz(3) ** 2000, mpz(1) << 3000
    stop_s = time.perf_counter() + _SPIN_S

    def spin() -> None:
        while time.perf_counter() < stop_s:
            # Unlike other calls of gmpy2, this one lets other threads run.
            gmpy2.powmod_base_list([base], exponent, modulus)

    threads = [threading.Thread(target=spin) for _ in range(cores)]
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.process_time() - cpu_s) / (time.perf_counter() - wall_s)


def _fastest(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(_REPEATS):
        start_s = time.thread_time()
        work()
        best = min(best, time.thread_time() - start_s)
    return best


def _fingerprint() -> str:
    """Return a digest of what the speed depends on."""
    model = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model += "".join(sorted({line for line in lines if line.startswith("model name")}))
    parts = (model, platform.python_version(), gmpy2.version(), gmpy2.mp_version(), version("colonnade"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, dict[str, float]]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
