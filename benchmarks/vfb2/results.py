"""Where results go: a JSON file with what was measured, and a table on the terminal."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).with_name("results")
_WIDTH = 140


def keep(name: str, rows: Sequence[Mapping[str, Any]], **circumstances: Any) -> Path:
    """Write what was measured, with the load of the machine at the end, and return the picture's path."""
    FOLDER.mkdir(exist_ok=True)
    machine = {
        "cores": os.cpu_count(),
        "load_1_min": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }
    document = {"machine": machine, **circumstances, "rows": list(rows)}
    text = json.dumps(document, indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n")
    return FOLDER / f"{name}.png"


def others(
    name: str, rows: Sequence[Mapping[str, Any]], keys: Sequence[str], title: str
) -> list[dict[str, Any]]:
    """Return rows of an earlier run under the same title, but for those that were measured anew."""
    path = FOLDER / f"{name}.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    if before.get("title") != title:
        return []
    anew = {tuple(row[key] for key in keys) for row in rows}
    return [row for row in before["rows"] if tuple(row[key] for key in keys) not in anew]


def show(title: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """Print rows as a table; `columns` gives each key its heading."""
    table = Table(title=title, title_justify="left")
    for heading in columns.values():
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*(_text(row.get(key)) for key in columns))
    Console(width=_WIDTH).print(table)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None else str(value)
