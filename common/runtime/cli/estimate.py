"""`vfl estimate`: seconds, bytes and memory of a job, before anything is started."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from common.errors import ConfigError
from common.runtime.calibration import Calibration, cache_folder, calibration, this_machine
from common.runtime.cli.console import PlainTable, duration, open_console, say, size
from common.runtime.config.job import JobConfig
from common.runtime.config.job_kinds import any_job_of
from common.runtime.config.local import local_of
from common.runtime.config.party import load_party
from common.runtime.config.yaml_source import read_document
from common.runtime.estimate import Estimate, Place, Rounds, Shape, choose_rounds, estimate
from common.runtime.estimate_inputs import (
    not_estimated,
    place_of,
    plan_of,
    shape_of_local,
    shape_of_party,
    with_rows,
)


def estimate_command(
    config: Annotated[
        Path, typer.Option("-c", "--config", metavar="FILE", help="A job file, or a file for `vfl local`.")
    ],
    party: Annotated[
        Path | None,
        typer.Option(
            "-p", "--party", metavar="PARTY_B.yaml", help="The active party's file, with a job file."
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, help="Aligned rows, if not as many as in our own data.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            metavar="PARTY=N",
            help="Columns of a passive party, otherwise taken to be as many as ours; may be repeated.",
        ),
    ] = None,
) -> None:
    """Say what a job will cost in seconds, bytes and memory; nothing is started and nobody is dialled.

    The first time takes a second or two more, in which this machine's speed is measured.
    """
    given = _columns(columns or [])
    shape, place, cache = _inputs(config, party, given)
    if rows is not None:
        shape = with_rows(shape, rows)
    speed = calibration(shape.job.crypto.key_bits, cache)
    own_only = party is not None
    assumed = {name for name in shape.job.passive if own_only and name not in given}
    _print(open_console(), shape, speed, place, assumed)


def _inputs(config: Path, party: Path | None, columns: dict[str, int]) -> tuple[Shape, Place, Path]:
    document = read_document(config)
    if "parties" in document.data:
        return shape_of_local(local_of(document)), "one machine", cache_folder()
    if party is None:
        raise ConfigError(
            "a job file alone does not say how many rows and columns there are",
            where=str(config),
            advice="Add the active party's file: -p PARTY_B.yaml.",
        )
    job = any_job_of(document)
    if not isinstance(job, JobConfig):
        raise not_estimated(job)
    own = load_party(party)
    unknown = columns.keys() - set(job.passive)
    if unknown:
        raise ConfigError(f"--columns names {', '.join(sorted(unknown))}, not a passive party of the job")
    return shape_of_party(own, job, columns), place_of(own), cache_folder(own.state)


def _columns(given: list[str]) -> dict[str, int]:
    columns = {}
    for one in given:
        name, _, count = one.partition("=")
        if not name or not count.isdecimal() or int(count) < 1:
            raise ConfigError(f"--columns {one}: should be PARTY=N, for example party_a=20")
        columns[name] = int(count)
    return columns


def _print(
    console: Console, shape: Shape, speed: Calibration, place: Place, assumed: Collection[str]
) -> None:
    job, machine = shape.job, this_machine()
    chosen: Rounds
    if job.crypto.rounds == "auto":
        chosen = choose_rounds(shape, speed, machine, place)
    else:
        chosen = "gram" if job.crypto.rounds == "gram" else "rowwise"
    found = estimate(shape, chosen, speed, machine, place)
    held = ", ".join(
        f"{party} {count}{' (assumed)' if party in assumed else ''}" for party, count in shape.columns.items()
    )
    say(
        console,
        f"{job.job}: {shape.train:,} training rows of {shape.aligned:,}; columns: {held}; "
        f"{job.crypto.key_bits}-bit key; at most {found.rounds:,} rounds, {_word(chosen)}; "
        f"{_where(found, place)}",
    )
    if assumed:
        say(
            console,
            f"assumed: as many columns at {', '.join(sorted(assumed))} as here, and that all rows are "
            "common; --columns PARTY=N and --rows N say it better",
        )
    if _has_choice(job):
        other: Rounds = "rowwise" if chosen == "gram" else "gram"
        instead = estimate(shape, other, speed, machine, place)
        say(console, f"{_word(other)} they would take {duration(instead.total_s)} and {size(_sent(instead))}")
    console.print()
    phases = PlainTable("phase", "seconds")
    for phase, seconds in found.seconds.items():
        phases.add_row(phase, duration(seconds))
    phases.add_row("total", duration(found.total_s))
    phases.add_row(
        "a round", duration(found.round_s) if found.round_s >= 1 else f"{found.round_s * 1000:.0f} ms"
    )
    phases.print(console)
    console.print()
    table = PlainTable("party", "busy", "sent", "received", "memory")
    for party, (sent, received) in found.traffic.items():
        busy = duration(sum(found.busy_s[party].values()))
        table.add_row(party, busy, size(sent), size(received), size(found.memory_bytes[party]))
    table.print(console)
    console.print()
    say(console, plan_of(shape).describe())


def _has_choice(job: JobConfig) -> bool:
    return job.crypto.rounds == "auto" and job.train.batch_size is None


def _sent(found: Estimate) -> int:
    return sum(sent for sent, _ in found.traffic.values())


def _word(kind: Rounds) -> str:
    return "row by row" if kind == "rowwise" else "on shared cross products (gram)"


def _where(found: Estimate, place: Place) -> str:
    shared = "all parties on this machine" if place == "one machine" else "each party on a machine like this"
    return f"{shared}, {found.cores:.1f} cores free now"
