"""Where the command `vfl` begins."""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """Run `vfl` with the program's arguments."""
    if "serve" not in sys.argv[1:2]:
        # gRPC's C core prints lines of its own beside our one error block. It reads this when it is imported.
        # A service keeps them: they are the only trace of a client that was refused during TLS.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # An arrow that the terminal's encoding lacks must not end a job that runs well.
            stream.reconfigure(errors="replace")
    from common.runtime.cli.app import main as run

    run()
