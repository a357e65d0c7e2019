"""`vfl serve`: becomes the service of the party whose file is given."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from common.runtime.config.party import party_of
from common.runtime.config.yaml_source import read_document

# The packages of the parties lie above this floor, so they are named here and not imported.
PROGRAMS = {"passive": "party_a", "active": "party_b", "coordinator": "coordinator"}


def serve(
    config: Annotated[Path, typer.Option("-c", "--config", metavar="PARTY.yaml", help="The party file.")],
) -> None:
    """Run a party's service until SIGTERM or Ctrl-C."""
    document = read_document(config)
    role = document.data.get("role")
    if not isinstance(role, str) or role not in PROGRAMS:
        role = party_of(document).role
    # This process becomes the service, so that its supervisor's signals and its exit code are the service's.
    os.execv(sys.executable, service_command(role, config))  # noqa: S606 - our own program, no shell


def service_command(role: str, config: Path) -> list[str]:
    """Return the command that runs a party's service.

    -P keeps the current folder off Python's path, where a folder named `common` may lie.
    """
    command = [sys.executable, "-P", "-m", PROGRAMS[role], "-c", str(config)]
    return [*command, "--debug"] if logging.getLogger("vfl").level == logging.DEBUG else command
