"""The command `vfl`.

Exit codes: 0 done, 1 the job or check failed, 2 usage or configuration (nothing was started), 3 a peer
could not be reached or refused. Ctrl-C while a job is watched ends with 130, and the job goes on.
"""

from __future__ import annotations

import importlib.metadata
import logging
import sys
from typing import Annotated

import typer

from common.runtime.cli import certs, check, demo, estimate, init, jobs, ledger, local, predict, serve
from common.runtime.service_process import check_imports, leave, reported, set_up_logging

app = typer.Typer(
    name="vfl",
    help="Vertical federated learning between organisations: one service each, one command line.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("serve")(serve.serve)
app.command("check")(check.check)
app.command("estimate")(estimate.estimate_command)
app.command("train")(jobs.train)
app.command("jobs")(jobs.jobs)
app.command("show")(jobs.show)
app.command("cancel")(jobs.cancel)
app.command("predict")(predict.predict)
app.command("local")(local.local)
app.command("demo")(demo.demo)
app.command("init")(init.init)
app.add_typer(certs.app, name="certs")
app.add_typer(ledger.app, name="ledger")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"colonnade {importlib.metadata.version('colonnade')}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Log more, and show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Vertical federated learning between organisations: one service each, one command line."""


def main() -> None:
    """Run `vfl` with the program's arguments."""
    # Wherever it stands: a user who met a bug adds --debug at the end of the same line.
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    set_up_logging(logging.DEBUG if debug else logging.WARNING)
    leave(reported(lambda: _run(arguments), show_traceback=debug))


def _run(arguments: list[str]) -> int:
    check_imports()
    try:
        app(arguments, prog_name="vfl")
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else 0
    return 0
