"""CPU seconds and memory of the parties of a local run, each with its worker processes (Linux).

The phases are those that `vfl local` prints as it goes, one plain line each.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

_PACKAGES = {"party_a": "party_a", "party_b": "party_b", "coordinator": "coordinator"}
_EVERY_S = 0.1
_PHASE = re.compile(r"\s*[0-9.]+ s  (?P<phase>[a-z]+)(?=\s|$)")


@dataclass
class Usage:
    """What a process and its descendants used.

    Attributes:
        cpu_s: By party, of all of its processes.
        peak_bytes: By party: all processes together, at the moment when they were most. Pages that processes
            share count in each.
        largest_bytes: By party, the largest single process.
        phase_bytes: By phase and party, the largest single process while the phase lasted.
    """

    cpu_s: dict[str, float] = field(default_factory=dict)
    peak_bytes: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    largest_bytes: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    phase_bytes: dict[str, dict[str, int]] = field(default_factory=dict)


class Watcher:
    """Looks at the processes below one of ours ten times a second, until it ends."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._usage = Usage()
        self._cpu: dict[int, tuple[str, float]] = {}
        self._parents = {process.pid: 0}
        self._owner: dict[int, str] = {}
        self._phase = "starting"
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._watch, self._listen)]
        for thread in self._threads:
            thread.start()

    def usage(self) -> Usage:
        """Wait for the end, and return what was used."""
        for thread in self._threads:
            thread.join()
        for party, seconds in self._cpu.values():
            self._usage.cpu_s[party] = self._usage.cpu_s.get(party, 0.0) + seconds
        return self._usage

    def _watch(self) -> None:
        while self._process.poll() is None:
            self._look()
            threading.Event().wait(_EVERY_S)

    def _listen(self) -> None:
        """Follow the phases; whoever starts the process gives its output to us by a pipe."""
        for line in self._process.stdout or ():
            found = _PHASE.match(line)
            self._phase = found["phase"] if found else self._phase

    def _look(self) -> None:
        together: defaultdict[str, int] = defaultdict(int)
        for pid in sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
            try:
                self._note(pid, together)
            except (OSError, ValueError):
                continue  # It ended while we looked.
        for party, size in together.items():
            self._usage.peak_bytes[party] = max(self._usage.peak_bytes[party], size)

    def _note(self, pid: int, together: defaultdict[str, int]) -> None:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        parent = int(fields[1])
        if pid not in self._parents and parent not in self._parents:
            return
        self._parents.setdefault(pid, parent)
        party = self._party_of(pid)
        if party is None:
            return
        ticks = int(fields[11]) + int(fields[12])
        self._cpu[pid] = (party, ticks / os.sysconf("SC_CLK_TCK"))
        size = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        together[party] += size
        self._usage.largest_bytes[party] = max(self._usage.largest_bytes[party], size)
        phase = self._usage.phase_bytes.setdefault(self._phase, {})
        phase[party] = max(phase.get(party, 0), size)

    def _party_of(self, pid: int) -> str | None:
        """Return the party whose service this is, or below whose service it runs."""
        if pid not in self._owner:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            for package, party in _PACKAGES.items():
                if package in words:
                    self._owner[pid] = party
        parent = self._parents.get(pid, 0)
        return self._owner.get(pid) or (self._party_of(parent) if parent in self._parents else None)
