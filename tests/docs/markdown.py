"""Reads our own documents: sections, fenced blocks, tables, and what they refer to."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    """Return every document of the project."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks/README.md"]


def section(path: Path, heading: str) -> str:
    """Return the text below the `## heading` that begins with these words, up to the next one."""
    parts = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = [part for part in parts[1:] if part.startswith(heading)]
    assert len(found) == 1, f"{path.name} has {len(found)} sections {heading!r}"
    return found[0]


def blocks(text: str, kind: str) -> list[str]:
    """Return the content of the fenced blocks of a kind."""
    return [content for info, content in _FENCE.findall(text) if info == kind]


def without_blocks(text: str) -> str:
    """Return the text without its fenced blocks."""
    return _FENCE.sub("", text)


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of every table row, headings and rulers left out."""
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.split("\n")
        if line[:2] == "| "
    ]
    return [row for row in rows if row[0].startswith("`")]
