"""`vfl init`: commented files for the parties of a job and for the job, ready to edit and ready to run."""

from __future__ import annotations

import difflib
import importlib.resources
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from common.errors import ConfigError
from common.runtime.cli.console import open_console, say
from common.runtime.cli.operator import made_folder

_ALL = ("coordinator", "party_a", "party_b")
_NETWORKS_DATA = "clients"
_BOTH = ("party_a", "party_b")


@dataclass(frozen=True, slots=True)
class Example:
    """What a first job of an algorithm consists of: files of the package `configs`, and a data set there.

    Attributes:
        parties: In the order in which they are started.
    """

    job: str
    dataset: str
    parties: tuple[str, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """What `vfl init` writes, below its folder."""
        tables = (f"data/{self.dataset}_{party[-1]}.csv" for party in self.parties if party in _BOTH)
        parties = (f"{party}.yaml" for party in self.parties)
        return (*parties, "job.yaml", "local.yaml", *tables, "data/README.md")


EXAMPLES: Mapping[str, Example] = {
    "he_linear": Example("job.yaml", "diabetes", _ALL),
    "he_logistic": Example("jobs/he_logistic.yaml", "breast", _ALL),
    "vfb2": Example("jobs/vfb2.yaml", "breast", _BOTH),
    "splitnn": Example("jobs/splitnn.yaml", _NETWORKS_DATA, _BOTH),
    "jpl": Example("jobs/jpl.yaml", _NETWORKS_DATA, _BOTH),
    "fpd": Example("jobs/fpd.yaml", _NETWORKS_DATA, _BOTH),
    "local": Example("jobs/local.yaml", "diabetes", ("party_b",)),
}

_LOCAL = """\
# Everything on this machine: `vfl local -c local.yaml` starts these parties, runs this job, and stops them.
# Only addresses and certificates are others than those in the files. `--predict NAME` then scores a data set.

parties: [{parties}]
job: job.yaml
"""


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or one without such files.")],
    algorithm: Annotated[
        str, typer.Option("--algorithm", metavar="NAME", help=f"One of {', '.join(EXAMPLES)}.")
    ] = "he_linear",
) -> None:
    """Write commented configuration files for the parties and a job, with data to try them on."""
    chosen = _chosen(algorithm)
    present = [folder / name for name in chosen.files if (folder / name).exists()]
    if present:
        raise ConfigError(
            "the file is there already, and is not overwritten",
            where=str(present[0]),
            advice="Choose another folder.",
        )
    console = open_console()
    for name in chosen.files:
        target = made_folder((folder / name).parent) / Path(name).name
        try:
            target.write_bytes(_content(name, algorithm, chosen))
        except OSError as exc:
            raise ConfigError(f"cannot be written: {exc.strerror}", where=str(target)) from exc
        say(console, f"wrote {target}")
    say(console, "\n".join(_next(folder, chosen)))


def example(name: str) -> Path:
    """Return the path of a file of the package `configs`."""
    return Path(str(importlib.resources.files("configs"))) / name


def _chosen(algorithm: str) -> Example:
    found = EXAMPLES.get(algorithm)
    if found is None:
        close = difflib.get_close_matches(algorithm.lower(), EXAMPLES, n=1)
        raise ConfigError(
            f'there is no algorithm "{algorithm}"' + (f', did you mean "{close[0]}"?' if close else ""),
            where="--algorithm",
            advice=f"The algorithms are {', '.join(EXAMPLES)}.",
        )
    return found


def _content(name: str, algorithm: str, chosen: Example) -> bytes:
    """Return a file as the chosen algorithm needs it."""
    if name == "job.yaml":
        return example(chosen.job).read_bytes()
    if name == "local.yaml":
        return _LOCAL.format(parties=", ".join(f"{party}.yaml" for party in chosen.parties)).encode()
    content = example(name).read_bytes()
    return _party_file(content.decode(), algorithm, chosen).encode() if name.endswith(".yaml") else content


def _party_file(text: str, algorithm: str, chosen: Example) -> str:
    """Return a party file of the walkthrough with the example's data set, algorithm and peers."""
    absent = [party for party in _ALL if party not in chosen.parties]
    kept = [line for line in text.splitlines() if not line.startswith(tuple(f"  {one}:" for one in absent))]
    text = "\n".join([*kept, ""]).replace("diabetes", chosen.dataset)
    for party in absent:
        text = text.replace(f", {party}]", "]").replace(f"[{party}]", "[]")
    if chosen.parties == ("party_b",):
        text = text.replace("\npeers:\n", "\npeers: {}\n")
    # B agrees to its own jobs as it is; a list without any name would say nothing about others' jobs.
    return text if algorithm == "local" else text.replace("[he_linear]", f"[{algorithm}]")


def _next(folder: Path, chosen: Example) -> Iterator[str]:
    """Yield what to type next."""
    if chosen.dataset == _NETWORKS_DATA:
        yield "first: pip install 'colonnade[nn]'; in a clone .venv/bin/pip install -e '.[nn]'"
    yield "next, all of it on this machine:"
    yield f"  cd {folder}"
    yield f"  vfl local -c local.yaml --out out --predict {chosen.dataset}"
    yield "or a service for each party:"
    yield "  vfl certs init certs" + "".join(f" --party {party}" for party in sorted(chosen.parties))
    for index, party in enumerate(chosen.parties):
        shell = "" if index or len(chosen.parties) == 1 else "       (each in a shell of its own)"
        yield f"  vfl serve -c {party}.yaml{shell}"
    yield "  vfl check -c party_b.yaml -c job.yaml"
    yield "  vfl train -c job.yaml -p party_b.yaml --out out"
    yield f"  vfl predict JOB --dataset {chosen.dataset} -p party_b.yaml --out scores.csv"
