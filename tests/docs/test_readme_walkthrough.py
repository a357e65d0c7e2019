"""The README's walkthrough works as it is written: its commands, one shell after another."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, blocks, section

WALKTHROUGH = blocks(section(ROOT / "README.md", "Walkthrough"), "sh")
# As the configuration of `vfl init` has them; the test puts free ones in their place.
PORTS = ("7001", "7002", "7003")
WITHIN_S = 120.0


class Shells:
    """Shells that begin in one folder; services run on while the next shell is opened."""

    def __init__(self, folder: Path, cleanup: ExitStack) -> None:
        self.services: list[subprocess.Popen[str]] = []
        self._folder = folder
        self._cleanup = cleanup
        self._ports = dict(zip(PORTS, _free_ports(), strict=True))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path}

    def run(self, block: str) -> str:
        """Run the commands of one shell; return what they print, services left out."""
        cwd, printed = self._folder, ""
        for command in map(shlex.split, block.splitlines()):
            if command[0] == "cd":
                cwd /= command[1]
            elif command[:2] == ["vfl", "serve"]:
                self._serve(command, cwd)
            else:
                printed += self._finish(command, cwd)
            if command[:2] == ["vfl", "init"]:
                self._take_free_ports(cwd / command[2])
        return printed

    def _finish(self, command: list[str], cwd: Path) -> str:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _serve(self, command: list[str], cwd: Path) -> None:
        log = self._cleanup.enter_context((cwd / f"{len(self.services)}.log").open("w"))
        service = subprocess.Popen(
            command, cwd=cwd, env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
        self._cleanup.callback(service.kill)
        self.services.append(service)
        assert service.stdout is not None
        assert " listening on 127.0.0.1:" in service.stdout.readline()

    def _take_free_ports(self, folder: Path) -> None:
        for path in folder.glob("*.yaml"):
            text = path.read_text(encoding="utf-8")
            for written, free in self._ports.items():
                text = text.replace(f"127.0.0.1:{written}", f"127.0.0.1:{free}")
            path.write_text(text, encoding="utf-8")


def _free_ports() -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in PORTS]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture
def shells(tmp_path: Path) -> Iterator[Shells]:
    with ExitStack() as cleanup:
        yield Shells(tmp_path, cleanup)


@pytest.mark.e2e
def test_the_walkthrough_trains_a_model_between_three_services(shells: Shells, tmp_path: Path) -> None:
    printed = "".join(shells.run(block) for block in WALKTHROUGH)
    assert len(shells.services) == 3
    assert " checks, all ok" in printed
    assert "finished" in printed
    federation = tmp_path / "federation"
    report = json.loads((federation / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["rounds"] == 25
    assert {path.name for path in (federation / "out").iterdir()} >= {
        "report.json",
        "report.html",
        "predictions_test.csv",
        "model.json",
    }
    assert len(list(federation.glob("state/party_a/jobs/*/model.json"))) == 1
    for service in shells.services:
        service.send_signal(signal.SIGINT)
    assert [service.wait(WITHIN_S) for service in shells.services] == [0, 0, 0]
