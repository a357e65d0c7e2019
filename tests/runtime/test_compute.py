"""Executors: the same results wherever the arithmetic runs, and no worker outlives its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from common.runtime.compute import InProcessExecutor, available_cores, open_executor


def test_every_executor_gives_the_same_results_in_the_same_order() -> None:
    bases = list(range(2, 40))
    with open_executor(0) as here, open_executor(2) as pool:
        expected = [pow(base, 65537, 2**89 - 1) for base in bases]
        modulus, exponent = [2**89 - 1] * len(bases), [65537] * len(bases)

        assert list(here.map(pow, bases, exponent, modulus)) == expected
        assert list(pool.map(pow, bases, exponent, modulus)) == expected


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_reaches_the_one_who_asks_for_the_result(workers: int) -> None:
    with open_executor(workers) as executor:
        future = executor.submit(divmod, 1, 0)

        with pytest.raises(ZeroDivisionError):
            future.result()


def test_no_workers_mean_this_process() -> None:
    executor = open_executor(0)

    assert isinstance(executor, InProcessExecutor)
    assert executor.submit(os.getpid).result() == os.getpid()


def test_workers_are_other_processes_and_auto_is_at_least_one() -> None:
    with open_executor(1) as executor:
        assert executor.submit(os.getpid).result() != os.getpid()
    assert available_cores() >= 1


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        # A zombie waits for its parent and does nothing any more.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(
        textwrap.dedent("""
            import os, signal
            from common.runtime.compute import open_executor
            if __name__ == "__main__":
                executor = open_executor(2)
                pids = {executor.submit(os.getpid).result() for _ in range(20)}
                print(*pids, flush=True)
                signal.pause()
        """)
    )
    parent = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert workers
    assert all(is_running(pid) for pid in workers)

    parent.send_signal(signal.SIGKILL)
    parent.wait()

    # The workers have inherited the pipe, so it ends only when the last of them has.
    with parent.stdout:
        assert parent.stdout.read() == ""
    assert not any(is_running(pid) for pid in workers)
