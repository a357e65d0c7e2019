"""`vfl local`: all parties of one file on this machine, one job, and everything stopped again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Coroutine, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from common.errors import ColonnadeError, JobCancelled
from common.rpc.pb.active_party_pb2 import JobRecord
from common.runtime.cli.console import open_console, progress_view, say
from common.runtime.cli.follow import follow, interrupts
from common.runtime.cli.local_parties import LocalParties
from common.runtime.cli.operator import Operator, made_folder, operating, raise_if_unsuccessful
from common.runtime.cli.results import print_results
from common.runtime.config.local import LocalConfig, load_local
from common.runtime.state import JobStore, write_atomically

OutFolder = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Where everything is written; else out/JOB-TIME.")
]

_CANCEL_S = 5.0


def local(
    config: Annotated[
        Path, typer.Option("-c", "--config", metavar="LOCAL.yaml", help="All parties and the job.")
    ],
    out: OutFolder = None,
) -> None:
    """Run every party of one file as its own process on this machine, and one job."""
    settings = load_local(config)
    console = open_console()
    folder = made_folder(out or default_folder(settings.job.job))
    report = run_local(settings, folder, console)
    print_results(console, report)
    say(console, f"files: {folder}")


def default_folder(job: str) -> Path:
    """Return the folder for a run's results when nobody named one."""
    return Path("out") / f"{job}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"


def run_local(config: LocalConfig, folder: Path, console: Console) -> dict[str, Any]:
    """Run all parties and the job; return the report, which is also in the folder.

    Raises:
        ColonnadeError: The job ended without a model, or a service did not stay up.
    """
    logs = made_folder(folder / "logs")
    with tempfile.TemporaryDirectory(prefix="vfl-local-") as run_folder:
        parties = LocalParties(config, Path(run_folder), logs)
        return asyncio.run(_run(parties, folder, console))


async def _run(parties: LocalParties, folder: Path, console: Console) -> dict[str, Any]:
    names = ", ".join(party.party for party in parties.config.parties)
    say(console, f"starting {names} on 127.0.0.1")
    with interrupts() as pressed:
        async with parties.started() as active, operating(active) as operator:
            record = await _watched_job(
                parties, operator, pressed, _finished_job(operator, parties, folder, console)
            )
            return _with_all_models(parties, record, folder)


async def _watched_job(
    parties: LocalParties, operator: Operator, pressed: asyncio.Event, run: Coroutine[Any, Any, JobRecord]
) -> JobRecord:
    """Return the finished job's record, unless a party dies or the user interrupts before."""
    job = asyncio.ensure_future(run)
    death = asyncio.ensure_future(parties.first_death())
    stop = asyncio.ensure_future(pressed.wait())
    try:
        await asyncio.wait({job, death, stop}, return_when=asyncio.FIRST_COMPLETED)
        if job.done():
            return job.result()
        if death.done():
            raise death.result()
        await _cancelled(operator, parties.config.job.job)
        raise JobCancelled("interrupted: the job was cancelled and every party stopped")
    finally:
        for task in (job, death, stop):
            task.cancel()


async def _finished_job(
    operator: Operator, parties: LocalParties, folder: Path, console: Console
) -> JobRecord:
    submitted = await operator.submit(parties.config.job)
    with progress_view(console) as view:
        record = await follow(operator, submitted.job_id, view)
    raise_if_unsuccessful(record)
    await operator.fetch(record.job_id, folder)
    return record


async def _cancelled(operator: Operator, job: str) -> None:
    with contextlib.suppress(ColonnadeError, TimeoutError):
        await asyncio.wait_for(operator.cancel(job), _CANCEL_S)


def _with_all_models(parties: LocalParties, record: JobRecord, folder: Path) -> dict[str, Any]:
    """Put every party's part of the model into the report: here one user owns them all."""
    path = folder / "report.json"
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for one in parties.running:
        store = JobStore(one.config.state)
        if store.has(record.job_id, "model.json"):
            part: Mapping[str, Any] = store.read_json(record.job_id, "model.json")
            report.setdefault("model", {})[one.party.party] = dict(part)
    write_atomically(path, json.dumps(report, indent=2, ensure_ascii=False).encode())
    return report
