"""`vfl predict`: scores of new rows with a model that a job has left."""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from common.errors import ConfigError
from common.rpc.pb.active_party_pb2 import ScoreIdsReply
from common.runtime.cli.console import open_console, say
from common.runtime.cli.follow import follow_on_console
from common.runtime.cli.jobs import JobName
from common.runtime.cli.local import running
from common.runtime.cli.operator import (
    Operator,
    made_folder,
    operating,
    raise_if_unsuccessful,
    write_result,
)
from common.runtime.cli.results import print_results
from common.runtime.cli.scoring import fetch_scores, prediction_with, require_dataset, scores_csv
from common.runtime.config.local import LocalConfig, local_of
from common.runtime.config.party import PartyConfig, party_of
from common.runtime.config.yaml_source import read_document


def predict(
    job: JobName,
    party: Annotated[
        Path,
        typer.Option(
            "-p",
            "--party",
            metavar="PARTY_B.yaml",
            help="The active party's file; or the file of `vfl local`, whose parties are started for this.",
        ),
    ],
    dataset: Annotated[
        str, typer.Option("--dataset", metavar="NAME", help="The new rows: a data set of every party's file.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.csv", help="Where id and score are written.")
    ] = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Score this row only, now; may be given several times."),
    ] = None,
) -> None:
    """Score new rows with the model of a finished job; the file has the order of the data set."""
    if not ids and out is None:
        raise ConfigError("nobody said where the scores are to be written", advice="Add --out FILE.csv.")
    if out is not None and out.is_dir():
        raise ConfigError("this is a folder", where=str(out), advice="Name a file: --out FILE.csv.")
    wanted = _Wanted(job, dataset, tuple(ids or ()), out)
    document = read_document(party)
    if "parties" in document.data:
        local = local_of(document)
        require_dataset(local.scorers, dataset, party)
        _require_kept_models(local, wanted, party)
        asyncio.run(_score_locally(local.scoring(), wanted))
    else:
        own = party_of(document)
        require_dataset((own,), dataset, party)
        asyncio.run(_score(own, wanted))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is to be scored: a whole data set into a file, or a few of its ids."""

    job: str
    dataset: str
    ids: tuple[str, ...]
    out: Path | None

    def write(self, reply: ScoreIdsReply) -> None:
        """Write the scores of a few ids to the file, or to stdout without one."""
        if self.out is None:
            typer.echo(scores_csv(reply), nl=False)
        else:
            write_result(self.out, scores_csv(reply).encode())


def _require_kept_models(local: LocalConfig, wanted: _Wanted, path: Path) -> None:
    without = [one.party for one in local.scorers if one.state is None]
    if without:
        raise ConfigError(
            f"{', '.join(without)} had no `state` to keep a model in: it ended with its run",
            where=str(path),
            advice=f"Train and score in one run, `vfl local -c {shlex.quote(str(path))} --predict "
            f"{wanted.dataset}`; or give each party a `state` and train again.",
        )


async def _score(own: PartyConfig, wanted: _Wanted) -> None:
    async with operating(own) as operator:
        if wanted.ids:
            wanted.write(await operator.score(wanted.job, wanted.dataset, wanted.ids))
        elif wanted.out is not None:
            await _score_all(operator, wanted, made_folder(wanted.out.parent) / wanted.out.name)


async def _score_all(operator: Operator, wanted: _Wanted, out: Path) -> None:
    console = open_console()
    trained = await operator.trained(wanted.job)
    if trained.job_id != wanted.job:
        say(console, f"the model is that of job {trained.job_id}")
    submitted = await operator.submit(prediction_with(trained, wanted.dataset))
    say(console, f"job {submitted.job_id} is submitted")
    record = await follow_on_console(operator, submitted.job_id, console, "cancel")
    raise_if_unsuccessful(record)
    print_results(console, await fetch_scores(operator, record.job_id, out))
    say(console, f"file: {out}")


async def _score_locally(local: LocalConfig, wanted: _Wanted) -> None:
    """Start the parties of the file, score, and stop them; without --out stdout has the scores only."""
    console = open_console() if wanted.out else Console(stderr=True, highlight=False, emoji=False)
    with tempfile.TemporaryDirectory(prefix="vfl-logs-") as logs:
        async with running(local, Path(logs), console) as federation:
            if wanted.ids:
                wanted.write(await federation.score_ids(wanted.job, wanted.dataset, wanted.ids))
            elif wanted.out is not None:
                out = made_folder(wanted.out.parent) / wanted.out.name
                print_results(console, await federation.score(wanted.job, wanted.dataset, out))
                say(console, f"file: {out}")
