"""`vfl init`: commented files for three parties and a job, ready to edit and ready to run."""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Annotated

import typer

from common.errors import ConfigError
from common.runtime.cli.console import open_console, say
from common.runtime.cli.operator import made_folder

FILES = (
    "party_a.yaml",
    "party_b.yaml",
    "coordinator.yaml",
    "job.yaml",
    "data/diabetes_a.csv",
    "data/diabetes_b.csv",
    "data/README.md",
)

_NEXT = """\
next:
  cd {folder}
  vfl certs init certs --party party_a --party party_b --party coordinator
  vfl serve -c coordinator.yaml       (each in a shell of its own)
  vfl serve -c party_a.yaml
  vfl serve -c party_b.yaml
  vfl check -c party_b.yaml -c job.yaml
  vfl train -c job.yaml -p party_b.yaml --out out"""


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or one without such files.")],
) -> None:
    """Write commented configuration files for three parties and a job, with data to try them on."""
    present = [folder / name for name in FILES if (folder / name).exists()]
    if present:
        raise ConfigError(
            "the file is there already, and is not overwritten",
            where=str(present[0]),
            advice="Choose another folder.",
        )
    console = open_console()
    for name in FILES:
        target = made_folder((folder / name).parent) / Path(name).name
        try:
            target.write_bytes(example(name).read_bytes())
        except OSError as exc:
            raise ConfigError(f"cannot be written: {exc.strerror}", where=str(target)) from exc
        say(console, f"wrote {target}")
    say(console, _NEXT.format(folder=folder))


def example(name: str) -> Path:
    """Return the path of a file of the package `configs`."""
    return Path(str(importlib.resources.files("configs"))) / name
