"""openmined-psi on the same ids: both sides in this process, one after the other, as its own examples do.

It pins protobuf to one version, so it is installed without that: `pip install --no-deps openmined-psi`.
"""

from __future__ import annotations

import time

from benchmarks.psi.parties import ids_of

_FALSE_POSITIVES = 1e-9


def seconds(count: int) -> tuple[float, float] | None:
    """Return the seconds of one intersection, on the clock and of computing; None without the library."""
    try:
        import private_set_intersection.python as psi
    except ImportError:
        return None
    server_ids, client_ids = ids_of(count)
    start, start_cpu = time.monotonic(), time.process_time()
    client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
    setup = server.CreateSetupMessage(_FALSE_POSITIVES, len(client_ids), server_ids, psi.DataStructure.RAW)
    response = server.ProcessRequest(client.CreateRequest(client_ids))
    found = client.GetIntersection(setup, response)
    elapsed = time.monotonic() - start, time.process_time() - start_cpu
    if sorted(found) != list(range(count - count // 2)):
        raise SystemExit("openmined-psi did not find the intersection")
    return elapsed
