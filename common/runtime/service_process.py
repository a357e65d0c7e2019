"""A party's process: arguments, logging, signals, one line on stdout, and an exit code.

    def main() -> None:                       # party_a/__main__.py
        leave(run_party("passive", build_service))

`build_service(config, executor, taps)` returns an object with `start` and `stop`. When `start` has returned,
the one line on stdout says where the party listens, so that port 0 can be used.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import NoReturn, Protocol, TextIO

import common
from common.errors import ColonnadeError, ConfigError
from common.rpc.wiretap import Tap
from common.runtime.compute import open_executor
from common.runtime.compute_dask import DaskExecutor
from common.runtime.config.party import Compute, PartyConfig, load_party, warn_of_missing_protection
from common.runtime.ledger.book import Ledger
from common.runtime.log_format import WithoutTexts
from common.runtime.state import JobStore
from common.types import Role

log = logging.getLogger("vfl.runtime")

# Running calls get this long to end after SIGTERM; supervisors usually kill after 10 to 30 seconds.
STOP_GRACE_S = 5.0


class Service(Protocol):
    """What a party's package hands to its process."""

    async def start(self) -> str:
        """Begin to listen; return the bound address as host:port."""
        ...

    async def stop(self, grace_s: float) -> None:
        """End all jobs and stop listening; running calls get `grace_s` seconds."""
        ...


ServiceBuilder = Callable[[PartyConfig, Executor, Sequence[Tap]], Service]


def run_party(role: Role, build: ServiceBuilder, arguments: list[str] | None = None) -> int:
    """Run a party's service until SIGTERM or Ctrl-C; return the exit code."""
    parser = argparse.ArgumentParser(description=f"Run the service of the {role} party until SIGTERM.")
    parser.add_argument(
        "-c", "--config", type=Path, required=True, metavar="PARTY.yaml", help="the party file"
    )
    parser.add_argument("--debug", action="store_true", help="log more, and show tracebacks")
    options = parser.parse_args(arguments)
    set_up_logging(logging.DEBUG if options.debug else logging.INFO)
    return reported(lambda: _run(role, build, options.config), show_traceback=options.debug)


def reported(run: Callable[[], int], *, show_traceback: bool) -> int:
    """Return the exit code of a run; errors become one block on stderr, no traceback."""
    try:
        return run()
    except ColonnadeError as exc:
        if show_traceback:
            log.exception("%s", type(exc).__name__)
        print(exc.block(_width(sys.stderr)), file=sys.stderr, flush=True)
        return exc.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)
        return 130
    except Exception as exc:
        if show_traceback:
            raise
        # The text of a foreign exception may hold a value of a row, so only its class is named.
        print(
            f"error: a bug in Colonnade ({type(exc).__name__}); run again with --debug for its traceback",
            file=sys.stderr,
        )
        return 1


def _width(stream: TextIO) -> int | None:
    """Return how many characters a line of the stream's terminal holds; None when it is none."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def leave(code: int) -> NoReturn:
    """End this process with an exit code, without taking the interpreter apart.

    gRPC's polling thread may still run then, and its C++ aborts the whole process: seen after a job that had
    ended well, once in some hundred runs. Everything durable is on the disk by now.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def check_imports() -> None:
    """Refuse to run when another package named `common` stands in the way of ours.

    Raises:
        ConfigError: The packages on the path do not belong together.
    """
    ours = Path(__file__).resolve().parents[2]
    found = [Path(entry).resolve().parent for entry in common.__path__]
    if found != [ours]:
        raise ConfigError(
            "another package named `common` is on Python's path",
            where=", ".join(map(str, found)),
            advice=f"Install Colonnade in an environment of its own; its own `common` is in {ours}.",
        )


def set_up_logging(level: int) -> None:
    """Send the log to stderr, one line a record; libraries are heard from WARNING on, tracebacks at DEBUG."""
    # gRPC's core would print its own lines beside ours; what they say is in our typed errors as well.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter if level <= logging.DEBUG else WithoutTexts
    handler.setFormatter(formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("vfl").setLevel(level)


def _run(role: Role, build: ServiceBuilder, path: Path) -> int:
    check_imports()
    config = load_party(path)
    warn_of_missing_protection(config)
    if config.role != role:
        raise ConfigError(
            f"{config.party} has the role {config.role}, but this program is the {role} party's",
            where=str(path),
            advice="`vfl serve -c FILE` starts the program that fits the role.",
        )
    with JobStore(config.state).claimed(), _executor(config.compute) as executor:
        asyncio.run(_serve(config, build, executor))
    log.info("%s has stopped", config.party)
    return 0


def _executor(compute: Compute) -> Executor:
    return open_executor(compute.workers) if compute.dask is None else DaskExecutor(compute.dask)


async def _serve(config: PartyConfig, build: ServiceBuilder, executor: Executor) -> None:
    ledger = Ledger(config.state, config.party)
    ledger.open()
    service = build(
        config, executor, (ledger.record,)
    )  # inside the loop: gRPC's servers and channels belong to one
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, stop)
    address = await service.start()
    with contextlib.suppress(BrokenPipeError):
        print(f"{config.party} listening on {address}", flush=True)
    log.info("%s (%s) listens on %s", config.party, config.role, address)
    await stop.wait()
    log.info("%s is stopping; running calls have %.0f s", config.party, STOP_GRACE_S)
    await service.stop(STOP_GRACE_S)


def _on_signal(stop: asyncio.Event) -> None:
    if stop.is_set():
        # The second signal means now: nothing durable is lost, because state is written before it is sent.
        os._exit(130)
    stop.set()
