"""The README shows what `vfl demo` prints today: the same lines and numbers, but for seconds and bytes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, blocks

SHOWN = blocks((ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")[0], "text")[0]
# Absolute: losses here are near 1e3, weights near 1e1.
LARGEST_DIFFERENCE = 1e-6
_PROGRESS = re.compile(r"^ *\d+\.\d s  (\w+) ")
_LOSS = re.compile(r"round (\d+)/\d+  loss ([\d.]+)")
_DIFFERENCE = re.compile(r"\d\.\de-\d\d")
_VARIES = (
    (re.compile(r"\d[\d.]* (?:s|min|h)\b"), "TIME"),
    (re.compile(r"\d[\d.]* [kMG]?B\b"), "BYTES"),
    (_DIFFERENCE, "DIFFERENCE"),
    (re.compile(r"^files: .*"), "files: FOLDER"),
    (re.compile(r" +"), " "),
)


def lines_of(output: str) -> list[str]:
    """Return the lines without progress, with what varies from run to run replaced by a word."""
    kept = []
    for line in output.splitlines():
        if not _PROGRESS.match(line):
            for pattern, word in _VARIES:
                line = pattern.sub(word, line)
            kept.append(line.strip())
    return kept


def phases_of(output: str) -> list[str]:
    """Return the phases that the lines of progress name, in order."""
    named = [match[1] for line in output.splitlines() if (match := _PROGRESS.match(line))]
    return list(dict.fromkeys(named))


@pytest.mark.e2e
def test_the_readme_shows_what_the_demo_prints(tmp_path: Path) -> None:
    vfl = Path(sys.executable).with_name("vfl")
    done = subprocess.run(
        [vfl, "demo", "--out", "out"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert lines_of(done.stdout) == lines_of(SHOWN)
    assert phases_of(done.stdout) == phases_of(SHOWN)
    # Which rounds get a line depends on the machine; a round's loss does not.
    losses, shown = dict(_LOSS.findall(done.stdout)), dict(_LOSS.findall(SHOWN))
    assert {number: losses[number] for number in losses.keys() & shown.keys()} == {
        number: shown[number] for number in losses.keys() & shown.keys()
    }
    assert all(float(number) < LARGEST_DIFFERENCE for number in _DIFFERENCE.findall(done.stdout))
