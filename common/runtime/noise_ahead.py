"""A thread that prepares a job's noise while the party waits for others."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Executor

from common.crypto.cipher import Cipher, PaillierCipher
from common.runtime.compute import InProcessExecutor

log = logging.getLogger("vfl.runtime")


class NoiseAhead:
    """Keeps one job's cipher stocked with noise, in idle moments, from its creation until it is finished."""

    def __init__(self, cipher: Cipher, executor: Executor, ciphertexts: int) -> None:
        """Begin to fill the stock, where that can help.

        Args:
            cipher: The job's cipher.
            executor: Where it computes; without worker processes there is no idle moment.
            ciphertexts: That the party seals in a round: more are not kept.
        """
        self._cipher = cipher if isinstance(cipher, PaillierCipher) else None
        if self._cipher is not None and not isinstance(executor, InProcessExecutor):
            # A daemon, because it may be waiting when the service is told to stop.
            threading.Thread(
                target=_fill, args=(self._cipher, ciphertexts), name="noise-ahead", daemon=True
            ).start()

    def finish(self) -> None:
        """End the thread after the chunk it is at."""
        if self._cipher is not None:
            self._cipher.finish_stock()


def _fill(cipher: PaillierCipher, ciphertexts: int) -> None:
    try:
        cipher.keep_stocked(ciphertexts)
    except Exception as exc:
        # The executor has shut down or lost a worker: whoever computes next says so. Noise can wait.
        log.debug("no noise is prepared any more: %s", type(exc).__name__)
