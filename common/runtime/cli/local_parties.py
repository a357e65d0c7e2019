"""Every party of a LOCAL.yaml as its own process on loopback, with throw-away certificates."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import JobError
from common.rpc.addresses import free_ports
from common.rpc.certs import create_ca, issue
from common.runtime.cli.serve import service_command
from common.runtime.config.local import LocalConfig, LocalParty
from common.runtime.config.party import PartyConfig, load_party, warn_of_missing_protection
from common.runtime.config.vfb2 import Vfb2Job
from common.runtime.service_process import STOP_GRACE_S
from common.types import Role

# A party reads no data before it listens; this allows for a cold disk and a busy machine.
START_S = 180.0

# They are deleted with the run; a shorter life would only make every party warn of the near end.
CERTIFICATE_DAYS = 60

# Beyond its own grace period a service may need to end its workers.
KILL_AFTER_S = STOP_GRACE_S + 10.0

# Whoever is dialled must listen before the one who dials it learns its port.
START_ORDER: tuple[Role, ...] = ("coordinator", "passive", "active")

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_TAIL_LINES = 15
_TAIL_BYTES = 8192


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A party's running service, its file and its log."""

    party: LocalParty
    config: PartyConfig
    process: Process
    log: Path

    def died(self, while_doing: str) -> JobError:
        """Return the error for a service that ended by itself, with the end of its log."""
        code = self.process.returncode
        how = (
            f"was killed by signal {-code}"
            if code is not None and code < 0
            else f"ended with exit code {code}"
        )
        return self._failed(f"{how} {while_doing}")

    def did_not_start(self) -> JobError:
        """Return the error for a service that does not listen: it has ended, or takes too long."""
        if self.process.returncode is not None:
            return self.died("before it was listening")
        return self._failed(f"was not listening after {START_S:.0f} s")

    def _failed(self, how: str) -> JobError:
        where = f"{self.log}, which ends with:\n{_tail(self.log)}"
        return JobError(f"{self.party.party}'s service {how}", where=where)


@dataclass(slots=True)
class LocalParties:
    """Starts the parties in the order in which they dial each other, and stops them all."""

    config: LocalConfig
    folder: Path
    logs: Path
    running: list[LocalProcess] = field(default_factory=list)
    addresses: Mapping[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def started(self) -> AsyncIterator[PartyConfig]:
        """Run all services while the block runs; yield the active party's configuration.

        Raises:
            JobError: A service did not start; names it and shows the end of its log.
        """
        certificates = self.folder / "certs"
        create_ca(certificates, "vfl local, throw-away", CERTIFICATE_DAYS)
        if isinstance(self.config.job, Vfb2Job):
            self.addresses = self._reserved()
        try:
            for role in START_ORDER:
                for party in self.config.parties:
                    if party.role == role:
                        issue(certificates, party.party, days=CERTIFICATE_DAYS)
                        self.running.append(await self._start(party))
            conducting = self.config.job.active
            active = next(one.config for one in self.running if one.party.party == conducting)
            warn_of_missing_protection(active)
            yield active
        finally:
            await self._stop()

    async def first_death(self) -> JobError:
        """Wait until a service ends by itself; return the error that says which."""
        waits = {asyncio.ensure_future(one.process.wait()): one for one in self.running}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return waits[done.pop()].died("while the job was running")

    async def _start(self, party: LocalParty) -> LocalProcess:
        path = self.folder / f"{party.party}.yaml"
        path.write_text(json.dumps(self._party_file(party), indent=1, ensure_ascii=False), encoding="utf-8")
        config = load_party(path)
        log = self.logs / f"{party.party}.log"
        with log.open("wb") as handle:
            # A session of its own: Ctrl-C at the terminal is for us, and we stop the parties in order.
            process = await asyncio.create_subprocess_exec(
                *service_command(party.role, path),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=handle,
                start_new_session=True,
                preexec_fn=_ending_with_us(),
            )
        started = LocalProcess(party, config, process, log)
        try:
            address = await self._address(started)
        except BaseException:
            # It is not among the running ones yet, so nobody else would stop it.
            await _ended(process)
            raise
        reachable = config.model_copy(update={"advertise": address})
        return LocalProcess(party, reachable, process, log)

    async def _address(self, started: LocalProcess) -> str:
        pipe = started.process.stdout
        line = b""
        if pipe is not None:
            with contextlib.suppress(TimeoutError):
                line = await asyncio.wait_for(pipe.readline(), START_S)
        words = line.decode("utf-8", "replace").split()
        if words[:3] != [started.party.party, "listening", "on"]:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(started.process.wait(), 1.0)
            raise started.did_not_start()
        return words[3]

    def _party_file(self, party: LocalParty) -> Mapping[str, Any]:
        """Return a party file to be written as JSON, which is YAML but for `${`."""
        own = party.model_dump(mode="json", exclude_unset=True)
        certificates = self.folder / "certs"
        own |= {
            "listen": self.addresses.get(party.party, "127.0.0.1:0"),
            "tls": {
                "ca": str(certificates / "ca.pem"),
                "cert": str(certificates / f"{party.party}.pem"),
                "key": str(certificates / f"{party.party}.key"),
            },
            "peers": self._peers(party),
            "state": str(party.state or self.folder / "state" / party.party),
        }
        escaped: Mapping[str, Any] = _escaped(own)
        return escaped

    def _peers(self, party: LocalParty) -> dict[str, str | None]:
        """Return all other parties, as policies name whom they work with; null for those not dialled."""
        addresses: dict[str, str | None] = dict(self.addresses) or {
            one.party.party: None if one.party.role == party.role else one.config.dial_address
            for one in self.running
        }
        return {
            one.party: addresses.get(one.party) for one in self.config.parties if one.party != party.party
        }

    def _reserved(self) -> dict[str, str]:
        """Return an address for everybody: in this job parties dial each other in a circle."""
        names = [party.party for party in self.config.parties]
        return {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}

    async def _stop(self) -> None:
        stopping = [_ended(one.process) for one in reversed(self.running)]
        await asyncio.gather(*stopping)


def _ending_with_us() -> Callable[[], None] | None:
    """Return what a forked service does first: ask Linux to stop it when we die, even by SIGKILL."""
    if sys.platform != "linux":
        return None
    # Loaded before the fork, which copies whatever lock another thread may hold.
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _ended(process: Process) -> None:
    """End a service: SIGTERM first, SIGKILL when it does not follow."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), KILL_AFTER_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {key: _escaped(inner) for key, inner in value.items()}
    return [_escaped(inner) for inner in value] if isinstance(value, list) else value


def _tail(path: Path) -> str:
    with path.open("rb") as handle:
        handle.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = handle.read().decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]
    return "\n".join(f"    {line}" for line in lines) or "    (nothing)"
