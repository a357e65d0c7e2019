"""`vfl ledger`: what left a party and what reached it, in plain words, and whether anybody changed that."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from common.errors import JobError
from common.rpc.disclosure import summary_of

# With these, every message type is known by its name.
from common.rpc.pb import active_party_pb2, coordinator_pb2, passive_party_pb2, vfb2_pb2  # noqa: F401
from common.runtime.cli.console import PlainTable, open_console, say, size
from common.runtime.config.party import load_party
from common.runtime.ledger.entry import Entry, LedgerError
from common.runtime.ledger.reading import entries_in, ledger_folder, verify
from common.runtime.ledger.reconcile import reconcile

app = typer.Typer(
    help="Read the ledger of every message that left a party or reached it.", no_args_is_help=True
)

PartyFile = Annotated[Path, typer.Option("-p", "--party", metavar="PARTY.yaml", help="The party's file.")]
JobId = Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only this job: its id.")]


@dataclass(slots=True)
class _Total:
    """Messages of one type between us and one peer, one way, in one job."""

    times: int = 0
    rows: int = 0
    values: int = 0
    wire_bytes: int = 0

    def add(self, entry: Entry) -> None:
        self.times += 1
        self.rows += entry.rows
        self.values += entry.values
        self.wire_bytes += entry.wire_bytes


@app.command("show")
def show_command(
    party: PartyFile,
    job: JobId = None,
    peer: Annotated[
        str | None, typer.Option("--peer", metavar="PARTY", help="Only what went to or came from this party.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The entries, a JSON object a line: what `reconcile` takes.")
    ] = False,
) -> None:
    """Say in plain words what this party sent and received, job by job."""
    own = load_party(party)
    chosen = (
        entry for entry in entries_in(own.state) if job in (None, entry.job) and peer in (None, entry.peer)
    )
    if as_json:
        sys.stdout.writelines(entry.line().decode() for entry in chosen)
        return
    _print(chosen)


@app.command("verify")
def verify_command(party: PartyFile) -> None:
    """Follow the chain of entries to its end, and name whatever was changed, taken out, or put in."""
    own = load_party(party)
    folder, verdict = ledger_folder(own.state), verify(own.state)
    if verdict.problems:
        raise LedgerError(
            "the ledger is not as it was written:\n" + "\n".join(f"  {one}" for one in verdict.problems),
            where=str(folder),
            advice="`vfl ledger reconcile` tells what the other parties have written down",
        )
    span = f", from {verdict.first} to {verdict.last}" if verdict.entries else ""
    say(open_console(), f"{verdict.entries:,} entries{span}: nothing was changed since they were written")


@app.command("reconcile")
def reconcile_command(
    other: Annotated[
        Path,
        typer.Argument(
            metavar="OTHER", help="The other party's ledger: its folder, or `vfl ledger show --json`."
        ),
    ],
    party: PartyFile,
    job: JobId = None,
) -> None:
    """Hold this party's ledger against another's: what one sent, the other must have received."""
    found = reconcile(load_party(party).state, other, job)
    if found.differences:
        raise JobError(
            f"the ledgers of {found.own} and {found.other} differ:\n"
            + "\n".join(f"  {one.sentence()}" for one in found.differences),
            where=str(other),
            advice=f"{found.equal:,} messages are in both; one that was under way when a party or its "
            "network failed is in one of them",
        )
    say(open_console(), f"{found.equal:,} messages, the same in the ledgers of {found.own} and {found.other}")


def _print(entries: Iterable[Entry]) -> None:
    jobs: dict[str, dict[tuple[str, str, str, str], _Total]] = {}
    for entry in entries:
        message = "" if entry.granularity == "no_data" else entry.message
        kind = (entry.direction, entry.peer, message, _protection(entry))
        jobs.setdefault(entry.job, {}).setdefault(kind, _Total()).add(entry)
    console = open_console()
    if not jobs:
        say(console, "no such entry")
    for job, totals in jobs.items():
        say(console, f"\n{job or 'outside jobs'}")
        table = PlainTable("", "times", "rows", "numbers", "bytes", "how", "what", kind="text")
        for (direction, peer, message, protection), total in sorted(totals.items(), key=_order):
            way = "to" if direction == "sent" else "from"
            table.add_row(
                f"{way} {peer or 'an unknown caller'}",
                f"{total.times:,}",
                f"{total.rows:,}",
                f"{total.values:,}",
                size(total.wire_bytes),
                protection,
                summary_of(message) if message else "turns, questions, presence: nothing computed from data",
            )
        table.print(console)


def _order(item: tuple[tuple[str, str, str, str], _Total]) -> tuple[str, bool]:
    """Put what a peer gets before what comes from it, and keep the order of the first messages else."""
    (direction, peer, _, _), _total = item
    return peer, direction == "received"


def _protection(entry: Entry) -> str:
    match entry.protection:
        case "ciphertext":
            return f"encrypted, key of the {entry.key}"
        case "masked":
            return "masked"
        case _:
            return "plaintext"
