"""`vfl local`: all parties of one file on this machine, one job, and everything stopped again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from common.errors import ColonnadeError, ConfigError, JobCancelled
from common.rpc.pb.active_party_pb2 import JobRecord, ScoreIdsReply
from common.runtime.cli.console import open_console, progress_view, say
from common.runtime.cli.follow import follow, interrupts
from common.runtime.cli.local_parties import LocalParties
from common.runtime.cli.operator import (
    Operator,
    made_folder,
    operating,
    raise_if_unsuccessful,
    write_result,
)
from common.runtime.cli.results import print_results
from common.runtime.cli.scoring import fetch_scores, prediction_with, require_dataset
from common.runtime.config.job_kinds import Job
from common.runtime.config.local import LocalConfig, load_local
from common.runtime.state import JobStore

T = TypeVar("T")

OutFolder = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Where everything is written; else out/JOB-TIME.")
]

_CANCEL_S = 5.0


def local(
    file: Annotated[
        Path | None, typer.Argument(metavar="[LOCAL.yaml]", help="The same as -c LOCAL.yaml.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("-c", "--config", metavar="LOCAL.yaml", help="All parties and the job.")
    ] = None,
    out: OutFolder = None,
    predict: Annotated[
        list[str] | None,
        typer.Option(
            "--predict",
            metavar="NAME",
            help="Then score this data set with the model; may be given several times.",
        ),
    ] = None,
) -> None:
    """Run every party of one file as its own process on this machine, and one job."""
    path = config or file
    if path is None or (file and config):
        raise ConfigError(
            "one file with all parties and a job is needed",
            where="-c LOCAL.yaml",
            advice="`vfl init DIR` writes one, local.yaml.",
        )
    settings, new = load_local(path), predict or []
    for name in new:
        require_dataset(settings.scorers, name, path)
    console = open_console()
    folder = made_folder(out or default_folder(settings.job.job))
    asyncio.run(_train_and_score(settings.scoring() if new else settings, new, folder, console))
    say(console, f"files: {folder}")
    if not new:
        say(console, f"new rows: {_way_to_score(settings, path)}")


def _way_to_score(settings: LocalConfig, path: Path) -> str:
    """Return what to type to score new rows: with kept models at any time, else in a run of its own."""
    file = shlex.quote(str(path))
    if all(party.state for party in settings.scorers):
        return f"vfl predict {settings.job.job} --dataset NAME -p {file} --out FILE.csv"
    return f"vfl local -c {file} --predict NAME trains again and scores a data set of the file"


def default_folder(job: str) -> Path:
    """Return the folder for a run's results when nobody named one."""
    return Path("out") / f"{job}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"


def run_local(config: LocalConfig, folder: Path, console: Console) -> dict[str, Any]:
    """Run all parties and the job; return the report, which is also in the folder.

    Raises:
        ColonnadeError: The job ended without a model, or a service did not stay up.
    """
    return asyncio.run(_trained(config, folder, console))


async def _trained(config: LocalConfig, folder: Path, console: Console) -> dict[str, Any]:
    async with running(config, folder / "logs", console) as federation:
        return await federation.train(folder)


async def _train_and_score(config: LocalConfig, new: Iterable[str], folder: Path, console: Console) -> None:
    async with running(config, folder / "logs", console) as federation:
        print_results(console, await federation.train(folder))
        for name in new:
            out = folder / f"scores_{name}.csv"
            print_results(console, await federation.score(config.job.job, name, out))


@asynccontextmanager
async def running(config: LocalConfig, logs: Path, console: Console) -> AsyncIterator[LocalFederation]:
    """Run all parties of a file while the block runs.

    Raises:
        JobError: A service did not start.
    """
    made_folder(logs)
    with tempfile.TemporaryDirectory(prefix="vfl-local-") as run_folder:
        parties = LocalParties(config, Path(run_folder), logs)
        say(console, f"starting {', '.join(party.party for party in config.parties)} on 127.0.0.1")
        with interrupts() as pressed:
            async with parties.started() as active, operating(active) as operator:
                yield LocalFederation(parties, operator, pressed, console)


@dataclass(frozen=True, slots=True)
class LocalFederation:
    """All parties of one file, running, and what their one user asks of them."""

    parties: LocalParties
    operator: Operator
    pressed: asyncio.Event
    console: Console

    async def train(self, folder: Path) -> dict[str, Any]:
        """Run the file's job; return the report, which is also in the folder, with all parts of the model.

        Raises:
            ColonnadeError: The job ended without a model, or a service did not stay up.
        """
        job = self.parties.config.job
        record = await self._watched(job.job, self._finished(job, folder))
        return _with_all_models(self.parties, record, folder)

    async def score(self, job: str, dataset: str, out: Path) -> dict[str, Any]:
        """Write the scores of a data set with the model of a job; return the prediction's report.

        Raises:
            ColonnadeError: The job has left no model, or scoring failed.
        """
        wanted = prediction_with(await self.operator.trained(job), dataset)
        record = await self._watched(wanted.job, self._finished(wanted, None))
        return await fetch_scores(self.operator, record.job_id, out)

    async def score_ids(self, job: str, dataset: str, ids: Sequence[str]) -> ScoreIdsReply:
        """Return the scores of a few rows."""
        return await self._watched(job, self.operator.score(job, dataset, ids))

    async def _finished(self, job: Job, folder: Path | None) -> JobRecord:
        submitted = await self.operator.submit(job)
        with progress_view(self.console) as view:
            record = await follow(self.operator, submitted.job_id, view)
        raise_if_unsuccessful(record)
        if folder is not None:
            await self.operator.fetch(record.job_id, folder)
        return record

    async def _watched(self, job: str, run: Coroutine[Any, Any, T]) -> T:
        """Return what comes of a job, unless a party dies or the user interrupts before."""
        task = asyncio.ensure_future(run)
        death = asyncio.ensure_future(self.parties.first_death())
        stop = asyncio.ensure_future(self.pressed.wait())
        try:
            await asyncio.wait({task, death, stop}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if death.done():
                raise death.result()
            await self._cancel(job)
            raise JobCancelled("interrupted: the job was cancelled and every party stopped")
        finally:
            for one in (task, death, stop):
                one.cancel()

    async def _cancel(self, job: str) -> None:
        with contextlib.suppress(ColonnadeError, TimeoutError):
            await asyncio.wait_for(self.operator.cancel(job), _CANCEL_S)


def _with_all_models(parties: LocalParties, record: JobRecord, folder: Path) -> dict[str, Any]:
    """Put every party's part of the model into the report: here one user owns them all."""
    path = folder / "report.json"
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for one in parties.running:
        store = JobStore(one.config.state)
        if store.has(record.job_id, "model.json"):
            part: Mapping[str, Any] = store.read_json(record.job_id, "model.json")
            report.setdefault("model", {})[one.party.party] = dict(part)
    write_result(path, json.dumps(report, indent=2, ensure_ascii=False).encode())
    return report
