"""party_a as a process of its own; prints its address. Prepare computes for two seconds without a pause."""

# ruff: noqa: N802 - the methods' names are those of protos/vfl/v1/passive_party.proto

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from common.rpc.pb import he_linear_pb2 as he
from common.rpc.tls import Security, TlsFiles
from tests.rpc.parties import PassivePartyForTests, serving


class Busy(PassivePartyForTests):
    """A party that holds up its whole event loop while it computes."""

    async def Prepare(self, request: he.PrepareRequest, context: Any) -> he.PrepareReply:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            pass
        return he.PrepareReply(turn=request.turn)


async def main(directory: Path) -> None:
    files = TlsFiles(directory / "ca.pem", directory / "party_a.pem", directory / "party_a.key")
    async with serving(Security(files), Busy()) as address:
        print(address, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
