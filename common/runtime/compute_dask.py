"""A Dask cluster as the executor of a party's arithmetic.

The cluster belongs to the party: its own columns go there as integers, besides ciphertexts. Between the
service and the cluster Dask speaks its own protocol, pickles included, so whoever may connect to the
scheduler may run code on the workers. Give it certificates (`tls://`, Dask's own configuration names the
files) unless it is on this machine.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from common.errors import ConfigError
from common.rpc.addresses import is_loopback

log = logging.getLogger("vfl.runtime")

P = ParamSpec("P")
T = TypeVar("T")

CONNECT_S = 10.0
# A task whose worker dies is given to another one by Dask itself, so often.
_RETRIES = 2


class DaskExecutor(Executor):
    """Computes on the workers of a Dask cluster; what a task returns does not depend on where it ran."""

    def __init__(self, address: str) -> None:
        """Connect to a scheduler.

        Raises:
            ConfigError: Dask is not installed, nobody answers, or the cluster has no workers.
        """
        self._address = address
        self._client = _connected(address)
        self._executor = self._client.get_executor(pure=False, retries=_RETRIES)
        self._shut_down = threading.Lock()
        if address.startswith("tcp://") and not is_loopback(address.removeprefix("tcp://")):
            log.warning("%s: the cluster is reached without TLS; columns travel there readable", address)

    @property
    def workers(self) -> int:
        """Threads of all workers together, as of now: clusters grow and shrink."""
        threads: dict[str, int] = self._client.nthreads()
        return max(1, sum(threads.values()))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return the future of a call on some worker."""
        future: Future[T] = self._executor.submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, which goes on."""
        if self._shut_down.acquire(blocking=False):
            with suppress(OSError, TimeoutError):
                self._executor.shutdown(wait)
                self._client.close()


def _connected(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError as exc:
        raise ConfigError(
            "compute.dask needs Dask, which is not installed",
            where=address,
            advice="Install it beside Colonnade: pip install 'colonnade[dask]'.",
        ) from exc
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as exc:
        raise ConfigError(
            f"no Dask scheduler answers ({type(exc).__name__})",
            where=address,
            advice="Start `dask scheduler` and `dask worker`, or correct compute.dask in the party file.",
        ) from exc
    if not client.nthreads():
        client.close()
        raise ConfigError(
            "the Dask cluster has no workers", where=address, advice=f"Start some: dask worker {address}"
        )
    return client


def problem_of(address: str) -> str | None:
    """Return what is wrong with the address of a scheduler, if anything is."""
    parts = urlsplit(address)
    try:
        fits = parts.scheme in ("tcp", "tls") and bool(parts.hostname) and parts.port is not None
    except ValueError:
        fits = False
    return None if fits else "should be a scheduler's address like tcp://127.0.0.1:8786 or tls://host:8786"
