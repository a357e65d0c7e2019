"""`vfl train`, `jobs`, `show`, `cancel`: what the active party's operator does with jobs."""

from __future__ import annotations

import asyncio
import json
import shlex
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from common.errors import ConfigError
from common.rpc.pb.active_party_pb2 import JOB_FAILED, JobRecord, JobStatus
from common.runtime.cli.console import PlainTable, duration, open_console, say
from common.runtime.cli.follow import Detached, OnInterrupt, fetch, follow_on_console
from common.runtime.cli.operator import Operator, made_folder, operating, raise_if_unsuccessful
from common.runtime.cli.results import print_results
from common.runtime.config.job_kinds import Job, load_any_job
from common.runtime.config.party import PartyConfig, load_party, warn_of_missing_protection

PartyFile = Annotated[
    Path, typer.Option("-p", "--party", metavar="PARTY_B.yaml", help="The active party's file.")
]
JobFile = Annotated[Path, typer.Option("-c", "--config", metavar="JOB.yaml", help="The job file.")]
JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="A job id, or a job's name: then its newest run.")
]
OutFolder = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where the report and the predictions are written."),
]

# Errors by which a party says no: common/errors.py.
_REFUSALS = ("PeerRefused", "Refused")

# What a shell expects of a program that ended because of Ctrl-C.
DETACHED_EXIT_CODE = 130


def train(
    config: JobFile,
    party: PartyFile,
    out: OutFolder = None,
    cancel_on_interrupt: Annotated[
        bool,
        typer.Option("--cancel-on-interrupt", help="Ctrl-C cancels the job instead of leaving it running."),
    ] = False,
) -> None:
    """Submit a job to the active party's running service, and follow it to its end.

    Ctrl-C stops watching; the job goes on, and `vfl show JOB --follow` watches it again.
    """
    own, job = load_party(party), load_any_job(config)
    check_fit(job, own, config)
    warn_of_missing_protection(own)
    folder = made_folder(out) if out else None
    asyncio.run(_train(own, job, folder, "cancel" if cancel_on_interrupt else "detach", party))


def jobs(party: PartyFile) -> None:
    """List the jobs of the active party's service."""
    records = asyncio.run(_jobs(load_party(party)))
    console = open_console()
    if not records:
        console.print("no jobs yet")
        return
    table = PlainTable("job", "name", "status", "rounds", "loss", "submitted", "took", kind="text")
    for record in records:
        table.add_row(*_row(record))
    table.print(console)


def show(
    job: JobName,
    party: PartyFile,
    follow: Annotated[bool, typer.Option("--follow", help="Watch the job until it ends.")] = False,
    out: OutFolder = None,
) -> None:
    """Show one job; with --follow watch it, with --out also fetch its report and predictions."""
    own = load_party(party)
    folder = made_folder(out) if out else None
    asyncio.run(_show(own, job, folder, party) if not follow else _follow(own, job, folder, party))


def cancel(job: JobName, party: PartyFile) -> None:
    """Cancel a job at all parties."""
    record = asyncio.run(_cancel(load_party(party), job))
    open_console().print(f"{record.job_id}: {status_word(record)}", markup=False)


def check_fit(job: Job, own: PartyConfig, path: Path) -> None:
    """Compare a job with the party file of the one who submits it.

    Raises:
        ConfigError: The job is another active party's, or names parties or data that are unknown here.
    """
    if job.active != own.party:
        raise ConfigError(
            f"the job's active party is {job.active}, but the party file is {own.party}'s",
            where=str(path),
            advice="Submit it with the active party's file, or change `active` in the job.",
        )
    unknown = [name for name in job.members[1:] if own.peers.get(name) is None]
    if unknown:
        raise ConfigError(
            f"{own.party} has no address for {', '.join(unknown)}",
            where=str(path),
            advice="Add it under `peers` in the party file, or change the job.",
        )
    if job.data.dataset not in own.datasets:
        raise ConfigError(
            f'{own.party} has no data set "{job.data.dataset}"',
            where=str(path),
            advice=f"Data sets in the party file: {', '.join(own.datasets) or 'none'}.",
        )


async def run_job(
    operator: Operator, job_id: str, console: Console, folder: Path | None, on_interrupt: OnInterrupt
) -> JobRecord:
    """Follow a job to its end, fetch what it left, and print its results.

    Raises:
        ColonnadeError: The job ended without a model.
        Detached: The user stopped watching.
    """
    record = await follow_on_console(operator, job_id, console, on_interrupt)
    raise_if_unsuccessful(record)
    with tempfile.TemporaryDirectory(prefix="vfl-") as spare:
        await fetch(operator, job_id, folder or Path(spare))
        report = json.loads(((folder or Path(spare)) / "report.json").read_text(encoding="utf-8"))
    print_results(console, report)
    if folder is not None:
        say(console, f"files: {folder}")
    else:
        say(console, f"files: `vfl show {job_id} --out DIR -p …` fetches them")
    return record


async def _train(
    own: PartyConfig, job: Job, folder: Path | None, on_interrupt: OnInterrupt, party: Path
) -> None:
    console = open_console()
    async with operating(own) as operator:
        record = await operator.submit(job)
        say(console, f"job {record.job_id} is submitted")
        await _run_or_detach(operator, record.job_id, console, folder, on_interrupt, party)


async def _follow(own: PartyConfig, job: str, folder: Path | None, party: Path) -> None:
    async with operating(own) as operator:
        record = await operator.show(job)
        await _run_or_detach(operator, record.job_id, open_console(), folder, "detach", party)


async def _run_or_detach(
    operator: Operator,
    job_id: str,
    console: Console,
    folder: Path | None,
    on_interrupt: OnInterrupt,
    party: Path,
) -> None:
    try:
        await run_job(operator, job_id, console, folder, on_interrupt)
    except Detached as exc:
        say(
            console,
            f"detached; {job_id} goes on\n  watch:  vfl show {job_id} --follow -p {shlex.quote(str(party))}\n"
            f"  cancel: vfl cancel {job_id} -p {shlex.quote(str(party))}",
        )
        raise typer.Exit(DETACHED_EXIT_CODE) from exc


async def _jobs(own: PartyConfig) -> list[JobRecord]:
    async with operating(own) as operator:
        return await operator.jobs()


async def _show(own: PartyConfig, job: str, folder: Path | None, party: Path) -> None:
    console = open_console()
    async with operating(own) as operator:
        record = await operator.show(job)
        for name, text in _lines(record):
            say(console, f"{name:<10} {text}")
        if folder is not None:
            for path in await operator.fetch(record.job_id, folder):
                say(console, f"{'file':<10} {path}")


async def _cancel(own: PartyConfig, job: str) -> JobRecord:
    async with operating(own) as operator:
        return await operator.cancel(job)


def status_word(record: JobRecord) -> str:
    """Return a job's status as one small word; one that a peer said no to is not a failure of its own."""
    if record.status == JOB_FAILED and not record.rounds and record.error.error in _REFUSALS:
        return "refused"
    return JobStatus.Name(record.status).removeprefix("JOB_").lower()


def _rounds(record: JobRecord) -> str:
    """Return how far a job came; nothing for one that was over before it began, or that has no rounds."""
    is_over = record.ended_unix_s > 0
    return (
        ""
        if not record.max_rounds or (is_over and not record.rounds)
        else (f"{record.rounds}/{record.max_rounds}")
    )


def _row(record: JobRecord) -> tuple[str, ...]:
    loss = f"{record.loss:.6g}" if record.HasField("loss") else ""
    return (
        record.job_id,
        record.name,
        status_word(record),
        _rounds(record),
        loss,
        _moment(record.submitted_unix_s),
        _took(record),
    )


def _lines(record: JobRecord) -> list[tuple[str, str]]:
    job_id, name, status, rounds, loss, submitted, took = _row(record)
    lines = [("job", job_id), ("name", name), ("algorithm", record.algorithm), ("status", status)]
    lines += [
        ("phase", record.phase),
        ("rounds", rounds),
        ("loss", loss),
        ("submitted", submitted),
        ("took", took),
    ]
    lines += [("error", record.error.what), ("where", record.error.where), ("do", record.error.advice)]
    return [(key, text) for key, text in lines if text]


def _moment(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M:%S") if unix_s else ""


def _took(record: JobRecord) -> str:
    return duration(record.ended_unix_s - record.submitted_unix_s) if record.ended_unix_s else ""
