"""`vfl check`: everything that can go wrong before a row moves, one line for each check."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from common.errors import ConfigError
from common.rpc.diagnose import Finding, Route, diagnose
from common.runtime.cli.console import open_console, say
from common.runtime.config.job_kinds import Job, any_job_of
from common.runtime.config.party import PartyConfig, party_of
from common.runtime.config.yaml_source import read_document
from common.runtime.ledger.book import Ledger


def check(
    config: Annotated[
        list[Path],
        typer.Option("-c", "--config", metavar="PARTY.yaml [-c JOB.yaml]", help="The party file; a job too."),
    ],
) -> None:
    """Check a party's files, certificates, and peers; with a job, also what each peer would answer."""
    own, job = read_files(config)
    passed = asyncio.run(_check(own, job))
    if not passed:
        raise typer.Exit(1)


def read_files(paths: list[Path]) -> tuple[PartyConfig, Job | None]:
    """Return the party file and the job file, which are told apart by what is in them.

    Raises:
        ConfigError: There is no party file, or more than one file of a kind.
    """
    documents = [read_document(path) for path in paths]
    jobs = [one for one in documents if "job" in one.data and not {"party", "parties"} & one.data.keys()]
    parties = [one for one in documents if one not in jobs]
    if len(parties) != 1 or len(jobs) > 1:
        raise ConfigError(
            f"one party file and at most one job file are needed, not {len(parties)} and {len(jobs)}",
            where=", ".join(map(str, paths)),
            advice="A party file has the key `party`, a job file the key `job`.",
        )
    return party_of(parties[0]), any_job_of(jobs[0]) if jobs else None


async def _check(own: PartyConfig, job: Job | None) -> bool:
    console = open_console()
    failed = count = 0
    async for group, finding in _findings(own, job):
        count += 1
        failed += not finding.ok
        _tell(console, group, finding)
    say(console, f"{count} checks, {failed} failed" if failed else f"{count} checks, all ok")
    return not failed


async def _findings(own: PartyConfig, job: Job | None) -> AsyncIterator[tuple[str, Finding]]:
    # These read data and so load scikit-learn and pyarrow: a second that no other command should wait.
    from common.runtime.cli.check_job import check_job, check_undialled
    from common.runtime.cli.check_own import check_own, check_port, missing_files

    for finding in _every(check_own(own, job)):
        yield own.party, finding
    for finding in await check_port(own):
        yield own.party, finding
    if missing_files(own):
        return
    taps = (Ledger(own.state, own.party).record,)
    for peer, address in own.peers.items():
        if address is None:
            yield peer, check_undialled(own, job, peer)
            continue
        role = job.role_of(peer) if job else None
        for finding in await diagnose(
            Route(peer, address, own.party, own.role, own.security, peer_role=role, taps=taps)
        ):
            yield peer, finding
    if job is not None:
        async for group, finding in check_job(own, job, taps):
            yield group, finding


def _every(findings: Iterator[Finding]) -> Iterator[Finding]:
    yield Finding("config", True, "the file is complete and consistent")
    yield from findings


def _tell(console: Console, group: str, finding: Finding) -> None:
    word = "[green]ok  [/]" if finding.ok else "[red]FAIL[/]"
    console.print(f"{word} ", end="")
    say(console, f"{group:<12} {finding.name:<12} {finding.detail}")
    if finding.advice and not finding.ok:
        say(console, f"     {'':<12} {'do:':<12} {finding.advice}")
