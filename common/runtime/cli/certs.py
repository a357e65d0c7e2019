"""`vfl certs`: a small certificate authority for parties that have none."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from common.errors import ConfigError
from common.rpc.certs import CA_DAYS, PARTY_DAYS, Existing, create_ca, issue, show
from common.rpc.tls import TlsFiles
from common.runtime.cli.console import PlainTable, open_console, say

app = typer.Typer(help="Make and look at certificates.", no_args_is_help=True)

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Where ca.pem and ca.key are, and the rest goes.")
]
CaName = Annotated[str, typer.Option("--name", help="The authority's name.")]
Days = Annotated[int, typer.Option("--days", min=1, help="How long certificates are valid.")]

DEFAULT_PARTIES = ("party_a", "party_b", "coordinator")


@app.command("init")
def init_command(
    folder: Folder,
    party: Annotated[
        list[str] | None,
        typer.Option("--party", help="A party; once for each. Without any: the three of `vfl init`."),
    ] = None,
    name: CaName = "Colonnade CA",
    days: Days = PARTY_DAYS,
) -> None:
    """Make an authority and the certificates of all parties, in one go."""
    parties = tuple(party or DEFAULT_PARTIES)
    repeated = sorted({one for one in parties if parties.count(one) > 1})
    if repeated:
        raise ConfigError(f"the party {repeated[0]} is given twice", where="--party")
    create_ca(folder, name)
    issued = [issue(folder, one, days=days) for one in parties]
    console = open_console()
    say(console, f"authority: {folder / 'ca.pem'}; keep {folder / 'ca.key'} to yourself")
    for one, files in zip(parties, issued, strict=True):
        _tell(one, files)


@app.command("ca")
def ca_command(folder: Folder, name: CaName = "Colonnade CA", days: Days = CA_DAYS) -> None:
    """Make an authority: ca.pem for everybody, ca.key for whoever issues certificates."""
    console = open_console()
    path = create_ca(folder, name, days)
    say(console, f"authority: {path}; keep {folder / 'ca.key'} to yourself")


@app.command("issue")
def issue_command(
    folder: Folder,
    party: Annotated[str, typer.Option("--party", help="The party's name: what its peers check.")],
    host: Annotated[
        list[str] | None, typer.Option("--host", help="A host name or address beside it.")
    ] = None,
    days: Days = PARTY_DAYS,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the certificate that is there.")
    ] = False,
) -> None:
    """Make one party's certificate, signed by the authority in DIR."""
    existing: Existing = "replace" if replace else "refuse"
    _tell(party, issue(folder, party, tuple(host or ()), days, existing=existing))


@app.command("show")
def show_command(
    path: Annotated[
        list[Path], typer.Argument(metavar="FILE|DIR…", help="Certificates, or folders of them.")
    ],
) -> None:
    """Say who certificates are for, and until when."""
    files = [file for one in path for file in (sorted(one.glob("*.pem")) if one.is_dir() else [one])]
    if not files:
        raise ConfigError("there is no certificate", where=", ".join(map(str, path)))
    table = PlainTable("file", "for", "names", "issued by", "valid until", "days left", kind="text")
    for found in show(files):
        left = str(found.days_left) if found.days_left >= 0 else "expired"
        until = f"{found.not_after:%Y-%m-%d %H:%M} UTC"
        row = (
            str(found.path),
            _plain(found.subject),
            " ".join(found.names),
            _plain(found.issuer),
            until,
            left,
        )
        table.add_row(*row)
    table.print(open_console())


def _tell(party: str, files: TlsFiles) -> None:
    console = open_console()
    say(console, f"{party}: {files.cert}, {files.key}")


def _plain(name: str) -> str:
    return name.removeprefix("CN=")
