"""A party's process: one line when it listens, exit 0 on SIGTERM, one block for every error."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Write = Callable[[str, str], Path]

# A bound for what would never end, not a measure: a busy machine takes its time to start Python.
ENOUGH_S = 300

# The smallest service that has a life of its own.
SERVICE = """
import sys
from common.runtime.service_process import run_party

class Service:
    def __init__(self, config, executor, taps):
        self.config = config
    async def start(self):
        {start}
        return "127.0.0.1:43211"
    async def stop(self, grace_s):
        print("stopped within", grace_s, file=sys.stderr)

if __name__ == "__main__":
    sys.exit(run_party("passive", Service))
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(write: Write, party_text: str) -> Iterator[Start]:
    """Return a function that starts the service with a party file of its own."""
    started: list[subprocess.Popen[str]] = []

    def begin(
        *options: str, line: str = "pass", text: str = "", config: str = "party.yaml"
    ) -> subprocess.Popen[str]:
        program = write("program.py", SERVICE.format(start=line))
        path = write(config, f"{party_text}compute: {{workers: 0}}\n{text}")
        process = subprocess.Popen(
            [sys.executable, str(program), "-c", str(path), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_says_where_it_listens_and_ends_with_0_when_told_to(
    start: Start, number: signal.Signals
) -> None:
    process = start()
    assert process.stdout is not None
    assert process.stdout.readline() == "party_a listening on 127.0.0.1:43211\n"

    process.send_signal(number)
    out, err = process.communicate(timeout=ENOUGH_S)

    assert process.returncode == 0
    assert out == ""
    assert "stopped within 5.0" in err


def test_a_second_service_on_the_same_state_is_refused(start: Start) -> None:
    first = start()
    assert first.stdout is not None
    first.stdout.readline()

    second = start(config="again.yaml")
    _, err = second.communicate(timeout=ENOUGH_S)

    assert second.returncode == 2
    assert "another service" in err


def test_an_unexpected_error_is_one_line_that_holds_no_value(start: Start) -> None:
    process = start(line="raise ValueError('row 7 holds 151.0')")
    _, err = process.communicate(timeout=ENOUGH_S)

    assert process.returncode == 1
    assert "a bug in Colonnade (ValueError)" in err
    assert "--debug" in err
    assert "Traceback" not in err
    assert "151.0" not in err


@pytest.mark.parametrize("debug", [False, True])
def test_the_log_names_an_error_and_shows_its_text_only_to_debug(start: Start, debug: bool) -> None:
    """Texts of foreign errors may hold a value of a row; tracebacks are for --debug."""
    lines = """
        import asyncio, logging
        async def broken():
            try:
                int("row 7 holds 151.0")
            except ValueError as cause:
                raise KeyError("label 152.0") from cause
        task = asyncio.ensure_future(broken())
        await asyncio.wait([task])
        logging.getLogger("vfl.test").error("a job failed", exc_info=task.exception())
        foreign = "a peer\\x1b[2J\\n2030-01-01 INFO vfl: forged" + "x" * 9999
        logging.getLogger("vfl.test").error("of %s", foreign)
        logging.getLogger("asyncio").error("never retrieved\\nfuture: %r", task, exc_info=task.exception())"""
    process = start(*(["--debug"] if debug else []), line=lines)
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    _, err = process.communicate(timeout=ENOUGH_S)

    assert "a job failed" in err
    assert "never retrieved" in err
    assert ("of a peer [2J 2030-01-01 INFO vfl: forgedx" in err) != debug  # one line, whatever a peer wrote
    assert ("x" * 9999 in err) == debug
    assert ("  KeyError, program.py:" in err and "  ValueError, program.py:" in err) != debug
    assert ("Traceback" in err) == debug
    assert ("151.0" in err) == ("152.0" in err) == debug


def test_debug_shows_the_traceback(start: Start) -> None:
    process = start("--debug", line="raise ValueError('x')")
    _, err = process.communicate(timeout=ENOUGH_S)

    assert process.returncode == 1
    assert "Traceback" in err


def test_an_error_of_ours_is_its_block_and_its_exit_code(start: Start) -> None:
    line = "from common.errors import PeerRefused; raise PeerRefused('no', where='c at x:1', advice='ask')"
    process = start(line=line)
    _, err = process.communicate(timeout=ENOUGH_S)

    assert process.returncode == 3
    assert "error: no\n  where: c at x:1\n  do:    ask\n" in err


def test_a_program_refuses_the_file_of_another_role(start: Start, write: Write, party_text: str) -> None:
    write("program.py", SERVICE.format(start="pass"))
    path = write("other.yaml", party_text.replace("role: passive", "role: coordinator"))
    done = subprocess.run(
        [sys.executable, str(path.parent / "program.py"), "-c", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "vfl serve" in done.stderr


def test_another_package_called_common_in_the_way_is_noticed(tmp_path: Path) -> None:
    """Two folders named `common` make one package for Python when neither stands in front."""
    program = textwrap.dedent("""
        import common
        common.__path__ = [*common.__path__, "/somewhere/else/common"]
        from common.runtime.service_process import check_imports
        from common.errors import ConfigError
        try:
            check_imports()
        except ConfigError as exc:
            print(exc.block())
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "another package named `common`" in done.stdout
    assert "/somewhere/else" in done.stdout


def test_a_folder_named_common_where_one_stands_does_not_get_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "__init__.py").write_text("raise RuntimeError('not ours')\n")

    done = subprocess.run(
        [sys.executable, "-P", "-c", "import common.errors; print('ours')"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "ours\n", done.stderr
